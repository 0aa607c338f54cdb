"""What a guess gets right: stated for every task, below the gate, and a margin is small beside what is above it."""

from pathlib import Path

import pytest
import studies

from protocol import tasks
from protocol.formats.refusals import BadInput
from protocol.plan import checks, toml_reader
from protocol.preflight import derive

TEXT = studies.PROTOCOL.format(model="x").replace('"association-256"', '"chain"').replace('"outside"', '"inside"')
LOSSLESS = {
    'rule = "superior"': 'rule = "non_inferior"',
    "at_least = 1": "margin = 0.1",
    'method = "sign-flip"': 'method = "t"',
}
FILE = {'name = "needle-256"': 'file = "mine.jsonl"\ngrader = "choice"'}
PLACE = '[[gate.places]]\nmodel = "path:x"\ntask = "chain"\n'


def parse(changes: dict[str, str], added: str = ""):
    text = TEXT
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    return toml_reader.parse_unchecked((text + added).encode(), "p.toml")


@pytest.mark.parametrize(
    ("changes", "added", "said"),
    [
        ({}, "", "p: gate.accuracy: 0.05 is not above 0.1, the share that guessing gets right on chain"),
        ({"accuracy = 0.05": "accuracy = 0.1"}, "", "p: gate.accuracy: 0.1 is not above 0.1"),
        ({"accuracy = 0.05": "accuracy = 0.5"}, PLACE + "accuracy = 0.1\n", r"p: gate.places\[0\]: 0.1 is not above"),
        ({'name = "chain"': 'name = "chain"\nchance = 0.05'}, "", r"p: tasks\[1\].chance: 0.05 is below 0.1"),
        (FILE, "", r"p: tasks\[0\].chance: missing; write the share .* of mine .* 0.25 for one of four choices"),
        (
            FILE | {'"mine.jsonl"': '"mine.jsonl"\nchance = 0.25', "accuracy = 0.05": "accuracy = 0.2"},
            "",
            "p: gate.accuracy: 0.2 is not above 0.25, the share that guessing gets right on mine",
        ),
        # A third of what 0.4 is above 0.1 is the margin: not smaller.
        (
            LOSSLESS | {"accuracy = 0.05": "accuracy = 0.4"},
            "",
            "p: decision.margin: 0.1 is not smaller than 0.1, which",
        ),
        (
            LOSSLESS | {"accuracy = 0.05": "accuracy = 0.5", "at_least = 1": "margin = 0.1\nlead_share = 0.2"},
            PLACE.replace('"chain"', '"needle-256"') + "accuracy = 0.6\n",
            r"p: decision.margin: 0.1 is not smaller than 0.08, which is 0.2 of the distance from guessing",
        ),
    ],
)
def test_a_gate_that_a_guess_passes_and_a_margin_beside_it_are_refused(changes, added, said):
    with pytest.raises(BadInput, match=said):
        checks.require_floor(parse(changes, added), Path("p"))


def test_a_margin_below_a_third_of_what_the_gate_is_above_a_guess_is_registered():
    checks.require_floor(parse(LOSSLESS | {"accuracy = 0.05": "accuracy = 0.41"}), Path("p"))
    checks.require_floor(parse({"accuracy = 0.05": "accuracy = 0.11"}), Path("p"))


def test_the_chance_of_every_task_is_derived_for_the_lock():
    design = parse(FILE | {'"mine.jsonl"': '"mine.jsonl"\nchance = 0.25'})
    assert derive._chances(design) == {"mine": "0.250000", "chain": "0.100000"}
    assert derive._chances(parse({'name = "chain"': 'name = "chain"\nchance = 0.2'}))["chain"] == "0.200000"


def test_every_built_in_task_says_what_a_guess_gets_right():
    for name in tasks.TASKS:
        chance = tasks.builtin_chance(name)
        assert chance is not None, name
        assert 0 <= float(chance) < 1, name
