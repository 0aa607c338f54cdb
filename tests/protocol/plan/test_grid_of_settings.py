"""A grid of a sweep is the arms that a person would have written by hand, and is refused where it stands."""

import re
from decimal import Decimal

import pytest
from studies import PROTOCOL, ROOT, SWEEP

from protocol.formats.refusals import BadInput
from protocol.plan import toml_reader

PLAIN = PROTOCOL.format(model="/nowhere")
for old, new in SWEEP.items():
    PLAIN = PLAIN.replace(old, new)
PLAIN = PLAIN.replace('h2o = { policy = "h2o" }', 'crystal = { policy = "crystal" }')
GRIDDED = PLAIN.replace('["h2o", "random"]', '["crystal", "random"]')
# The three sweeps of CrystalCache's appendix A.
APPENDIX = (
    '"scoring.max_trunk" = [16, 24, 32, 48]',
    '"scoring.steepness" = [2, 5, 10]',
    '"selection.alpha" = [0.5, 1.0, 2.0]',
)


def grid(*paths, arm="crystal", text=GRIDDED):
    return (text + f"\n[sweep.grid.{arm}]\n" + "\n".join(paths) + "\n").encode()


def by_hand(candidates):
    """The same protocol with its candidates written out. candidates: name and what it sets."""
    names = ", ".join(f'"{name}"' for name, _ in candidates)
    arms = "\n".join(f'"{name}" = {{ policy = "crystal", set = {{ {own} }} }}' for name, own in candidates)
    text = PLAIN.replace('crystal = { policy = "crystal" }', arms)
    return text.replace('["h2o", "random"]', f'[{names}, "random"]').encode()


def test_a_grid_is_locked_as_its_arms_written_by_hand():
    values = [(trunk, steep) for trunk in (16, 48) for steep in ("2", "0.50")]
    hand = [
        (
            f"crystal+max_trunk-{trunk}+steepness-{steep}",
            f'"scoring.max_trunk" = {trunk}, "scoring.steepness" = {steep}',
        )
        for trunk, steep in values
    ]
    written = grid('"scoring.max_trunk" = [16, 48]', '"scoring.steepness" = [2, 0.50]')
    made, same = (toml_reader.parse(data, "p") for data in (written, by_hand(hand)))
    assert made.content() == same.content()
    assert made.arms == same.arms
    assert made.sweep.candidates == (*(name for name, _ in hand), "random")
    assert made.probe_design().arms == same.probe_design().arms


def test_the_example_of_the_documentation_is_that_of_the_appendix():
    (block,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "crystalcache.md").read_text(), re.DOTALL)
    before, rest = PLAIN.split("[arms]")
    text = before + block + "[generation]" + rest.partition("[generation]")[2].partition("[sweep]")[0]
    design = toml_reader.parse(
        text.replace('"streaming"', '"crystal"').replace('beside = ["snapkv"]\n', "").encode(), "p"
    )
    assert len(design.sweep.candidates) == 36
    lines = [line.partition("  #")[0] for line in block.splitlines() if line.startswith('"s')]
    assert lines == list(APPENDIX)


def test_the_whole_grid_of_the_appendix_is_one_arm_a_combination():
    design = toml_reader.parse(grid(*APPENDIX), "p")
    made = [design.arm(name) for name in design.sweep.candidates if name != "random"]
    assert len(made) == 4 * 3 * 3
    assert made[0].set == {"scoring.max_trunk": 16, "scoring.steepness": 2, "selection.alpha": Decimal("0.5")}
    assert [arm.set["selection.alpha"] for arm in made[:4]] == [
        Decimal(value) for value in ("0.5", "1.0", "2.0", "0.5")
    ]
    assert design.policy(made[-1].name).scoring.max_trunk == 48
    assert "crystal" not in [arm.name for arm in design.arms]


def test_what_the_varied_arm_sets_all_of_its_candidates_set():
    text = GRIDDED.replace('policy = "crystal" }', 'policy = "crystal", set = { "protect.recent" = 64 } }')
    design = toml_reader.parse(grid(APPENDIX[0], text=text), "p")
    assert [design.arm(name).set["protect.recent"] for name in design.sweep.candidates[:4]] == [64] * 4


def test_two_settings_of_one_last_name_are_told_apart():
    both = '"scoring.breath.threshold" = [0.3, 0.5]', '"scoring.coattention.intra_threshold" = [0.3]'
    assert toml_reader.parse(grid(*both), "p").sweep.candidates[0] == "crystal+threshold-0.3+intra_threshold-0.3"
    both = '"scoring.breath.decay" = [1]', '"selection.decay" = [2]'
    with pytest.raises(BadInput, match=r"scoring\.breath\.decay: no setting"):
        toml_reader.parse(grid(*both), "p")
    assert toml_reader.parse_unchecked(grid(*both), "p").sweep.candidates[0] == (
        "crystal+scoring.breath.decay-1+selection.decay-2"
    )


def test_flags_lists_and_text_stand_in_names():
    design = toml_reader.parse_unchecked(grid('a = [true, 1.50, "x", [1, 4]]'), "p")
    assert design.sweep.candidates[:4] == ("crystal+a-true", "crystal+a-1.50", "crystal+a-x", "crystal+a-1_4")
