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


def test_an_arm_that_is_called_full_and_evicts_is_no_full_cache():
    with pytest.raises(BadInput, match="arms: has no full cache"):
        parse(TEXT.replace('full = { policy = "full" }', 'full = { policy = "h2o" }'))
