"""[gate]: what is read, what is locked, and the gates that would let everything or nothing through."""

import pytest
import studies

from protocol.formats.refusals import BadInput
from protocol.plan import toml_reader

TEXT = studies.PROTOCOL.format(model="x")
PLACE = '[[gate.places]]\nmodel = "path:x"\ntask = "needle-256"\n'


def parse(text: str):
    return toml_reader.parse(text.encode(), "p.toml")


def with_places(*added: str) -> str:
    return TEXT + "".join(PLACE + each for each in added)


def test_a_gate_is_locked_as_it_was_written():
    text = with_places("published = 0.503\nmargin = 0.03\n").replace("accuracy = 0.05", "accuracy = 0.40")
    assert parse(text).content()["gate"] == {
        "accuracy": "0.40",
        "truncated": "0.5",
        "places": [{"model": "path:x", "task": "needle-256", "published": "0.503", "margin": "0.03"}],
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TEXT.replace("accuracy = 0.05", "accuracy = 0.049"), "gate.accuracy: write a number from 0.05 to 1"),
        (TEXT.replace("accuracy = 0.05", "accuracy = 0"), "gate.accuracy: write a number from 0.05 to 1"),
        (TEXT.replace("truncated = 0.5", "truncated = 0.51"), "gate.truncated: write a number from 0 to 0.5"),
        (TEXT.replace("truncated = 0.5", ""), "gate.truncated: missing"),
        (TEXT.replace("accuracy = 0.05", ""), "gate.accuracy: missing"),
        (with_places("accuracy = 0.01\n"), "gate.places[0].accuracy: write a number from 0.05 to 1"),
        (with_places(""), "gate.places[0]: changes nothing"),
        (with_places("published = 0.5\n"), "gate.places[0].margin: missing beside published"),
        (with_places("margin = 0.03\n"), "gate.places[0].published: missing beside margin"),
        (with_places("published = 0.5\nmargin = 0.5\n"), "gate.places[0].margin: write a number from 0.001 to 0.1"),
        (
            with_places("published = 0.5\nmargin = 0.03\naccuracy = 0.6\n"),
            "gate.places[0].published: 0.5 within 0.03 is always below the gate's 0.6",
        ),
        (with_places("accuracy = 0.6\n", "accuracy = 0.5\n"), "gate.places: path:x, needle-256 stands twice"),
        (
            with_places("accuracy = 0.6\n").replace('task = "needle-256"\nacc', 'task = "chain"\nacc'),
            "gate.places[0].task: unknown task 'chain'",
        ),
        (
            with_places("accuracy = 0.6\n").replace('model = "path:x"', 'model = "path:y"'),
            "gate.places[0].model: unknown model 'path:y'",
        ),
        (TEXT + '[gate.places]\nmodel = "path:x"\n', "gate.places: write [[gate.places]]"),
        (TEXT.replace('full = { policy = "full" }\n', ""), "arms: has no full cache"),
        (TEXT.replace("[generation]", 'whole = { policy = "full" }\n[generation]'), "arms: full and whole never evict"),
    ],
)
def test_a_gate_that_is_none_is_refused(text, said):
    with pytest.raises(BadInput) as refused:
        parse(text)
    assert str(refused.value).startswith(f"p.toml: {said}")


def test_an_arm_that_is_called_full_and_evicts_is_no_full_cache():
    with pytest.raises(BadInput, match="arms: has no full cache"):
        parse(TEXT.replace('full = { policy = "full" }', 'full = { policy = "h2o" }'))
