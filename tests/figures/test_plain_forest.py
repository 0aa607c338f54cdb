"""The forest plot in plain text: what its columns mean, and what it never shows."""

import json

from studies import ROOT

from figures.drawing import plain_forest
from figures.drawing.plain_forest import KEY

MINUS = "\N{MINUS SIGN}"
ALPHA = json.loads((ROOT / "registrations/alpha-chain/verdict.json").read_text())["judged"]["contrasts"]


def contrast(difference, low, high, **more):
    values = {"difference": difference, "low": low, "high": high, "model": "m", "task": "t", "budget": "64"}
    return values | {"subject": "a", "against": "b", "matched": True} | more


def axis(line: str) -> str:
    return line.removeprefix("m t 64 a against b  ")[: plain_forest.COLUMNS]


def test_a_hand_drawn_axis():
    # 41 columns from -0.4 to 0.4: 0.02 a column, zero in the middle
    left, right, none, key = plain_forest.plain_forest(
        [
            contrast("-0.20", "-0.40", "-0.10"),
            contrast("0.20", "-0.10", "0.40", matched=False),
            contrast(None, None, None),
        ]
    )
    assert axis(left) == "├" + 9 * "─" + "●" + 4 * "─" + "┤" + 4 * " " + "│" + 20 * " "
    assert axis(right) == 15 * " " + "├" + 4 * "─" + "│" + 9 * "─" + "●" + 9 * "─" + "┤"
    assert axis(none) == 20 * " " + "│" + 20 * " "
    assert left.replace(MINUS, "-").endswith("-20.0 [-40.0, -10.0]")
    assert right.replace(MINUS, "-").endswith("+20.0 [-10.0, +40.0]  memory unmatched")
    assert none.endswith("not estimated")
    (full, _) = plain_forest.plain_forest([contrast("0.1", "0.0", "0.2", matched=False) | {"saves": False}])
    assert full.endswith("  saves no memory")
    assert key == KEY.format("95 %")


def test_zero_is_on_the_axis_however_far_an_effect_is_from_it():
    (line, _) = plain_forest.plain_forest([contrast("0.9", "0.8", "1.0")])
    assert axis(line).index("│") == 0
    assert axis(line).index("├") == 32  # 0.8 of 40 columns


def test_the_rows_of_a_shipped_study_stand_in_its_order():
    lines = plain_forest.plain_forest(ALPHA)
    assert [line.partition("  ")[0] for line in lines[:-1]] == [
        "chain-qwen2 chain 64 1d_div against 1d",
        "chain-qwen2 chain 128 1d_div against 1d",
        "chain-llama chain 64 1d_div against 1d",
        "chain-llama chain 128 1d_div against 1d",
    ]
    told = [line.rpartition("  ")[2].replace(MINUS, "-") for line in lines[:-1]]
    assert told == ["-1.5 [-4.8, +1.6]", "+0.5 [-1.7, +2.8]", "+3.6 [+0.3, +7.0]", "+1.4 [-0.8, +3.7]"]


def test_nothing_estimated_and_nothing_at_all_are_said():
    assert plain_forest.plain_forest([contrast(None, None, None)]) == ["no contrast could be estimated"]
    assert plain_forest.plain_forest([]) == ["no contrast could be estimated"]
    assert len(plain_forest.plain_forest([contrast("0", "0", "0")])) == 2


def test_many_contrasts_are_cut_with_their_number():
    lines = plain_forest.plain_forest([contrast("0.1", "0.0", "0.2")] * (plain_forest.MAX_ROWS + 7))
    assert len(lines) == plain_forest.MAX_ROWS + 2
    assert lines[-2] == "and 7 more contrasts"


def test_where_a_decisive_p_is_known_the_simultaneous_interval_is_drawn():
    simultaneous = {"p_decisive": "0.01", "low_simultaneous": "-0.400000", "high_simultaneous": "0.400000"}
    row, key = plain_forest.plain_forest([contrast("0.20", "0.10", "0.30") | simultaneous])
    assert axis(row) == "├" + 19 * "─" + "│" + 9 * "─" + "●" + 9 * "─" + "┤"
    assert row.replace(MINUS, "-").endswith("+20.0 [-40.0, +40.0]")
    assert key == KEY.format("simultaneous")
