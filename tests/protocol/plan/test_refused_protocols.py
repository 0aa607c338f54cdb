"""What a person may get wrong in protocol.toml, and what is said of it: the field, and the fix. The commonest
mistakes are in wrong_inputs.toml, with the whole line that is said.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import outside_studies
import pytest
from looped import looped
from studies import PROTOCOL, SWEEP
from test_agreement_study import AGREEMENT
from test_arms_that_ask import TEXT
from test_citations import CITING
from test_quantised_study import PACKED

from policies import Blockwise, Policy
from policies.scissorhands import scissorhands
from protocol.formats.refusals import BadInput
from protocol.plan import policy_checks, toml_reader

TABLE = Path(__file__).parent / "refused_protocols.txt"


def changed(text: str, changes: dict[str, str]) -> str:
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


PLAIN = PROTOCOL.format(model="/nowhere")
SWEPT = changed(PLAIN, SWEEP)
MARGIN = changed(PLAIN, {"at_least = 1": "margin = 0.03", 'method = "sign-flip"': 'method = "t"'})
FULL = changed(MARGIN, {'"superior"': '"non_inferior"', '["random", "streaming"]': '["full"]'})
SMALLEST = changed(FULL, {'"non_inferior"': '"smallest_lossless"', "[0.8]": "[96, 160]"})
GRID = {'h2o = { policy = "h2o" }': 'crystal = { policy = "crystal" }', '["h2o", "random"]': '["crystal", "random"]'}
RIGHT = {
    "plain": PLAIN,
    "swept": SWEPT,
    "gridded": changed(SWEPT, GRID),
    "margin": changed(MARGIN, {'"superior"': '"equivalent"'}),
    "full": FULL,
    "smallest": SMALLEST,
    "agreement": changed(PLAIN, AGREEMENT),
    "asking": TEXT,
    "citing": changed(PLAIN, CITING),
    "packed": changed(PLAIN, PACKED),
    "outside": outside_studies.PROTOCOL,
    "shared": SMALLEST + 'others = ["random", "streaming"]\n',
}


def read_mistakes() -> Iterator[tuple[str, str]]:
    """A wrong protocol, and what is said of it: of every line of the table."""
    for line in TABLE.read_text("utf-8").splitlines():
        if line.startswith("== "):
            right = RIGHT[line.removeprefix("== ")]
        elif line and not line.startswith("#"):
            changes, said = line.replace(" ⏎ ", "\n").split(" :: ")
            wrong = right
            for change in changes.split(" && "):
                old, how, new = (part.strip(" ") for part in re.split(r"(?:^| )(->|\+\+)(?= |$)", change))
                assert old in wrong, old
                wrong = wrong.replace(old, f"{old}\n{new}" if how == "++" else new) if old else f"{wrong}{new}\n"
            yield wrong, said


MISTAKES = list(read_mistakes())


@looped(("wrong", "said"), MISTAKES)
def test_a_mistake_is_refused_by_field_with_the_fix(wrong, said):
    with pytest.raises(BadInput) as refusal:
        toml_reader.parse(wrong.encode(), "protocol.toml")
    assert str(refusal.value).startswith("protocol.toml: ")
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)


@looped("right", RIGHT.values(), ids=RIGHT)
def test_what_these_mistakes_are_made_in_is_right(right):
    assert toml_reader.parse(right.encode(), "protocol.toml").title == right.strip().split('"')[1]


def test_a_policy_whose_signals_stop_with_the_prompt_is_refused_where_it_reads_in_blocks():
    """None of the catalogue does; one of another distribution may."""
    policy = Policy(scissorhands().scoring, cadence=Blockwise())
    generation = SimpleNamespace(first_event=None, think_only=False, preserve=None)
    design = SimpleNamespace(arms=[SimpleNamespace(name="own")], generation=generation, policy=lambda name: policy)
    assert list(policy_checks._intervals(design)) == [
        "arms.own.policy: NeglectCounts, which it needs, cannot be measured block by block; choose a "
        "policy without blocks"
    ]
