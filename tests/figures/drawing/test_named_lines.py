import itertools

import pytest

from figures.drawing import named_lines

LOCK = {"protocol": {"content": {"arms": {"a": {"policy": "one-0.5"}, "b": {"policy": "one"}, "c": {"policy": "h2o"}}}}}
PARTS = {"a": "policies.x.Weight()", "b": "policies.y.Weight()", "c": "policies.x.Weight()"}


def test_names_that_are_far_apart_stand_at_the_ends_of_their_lines():
    assert named_lines.spread_positions([10, 20, 40], 5, 0, 100) == [10, 20, 40]
    assert named_lines.spread_positions([], 5, 0, 100) == []


def test_names_that_would_touch_are_moved_by_hand_counted_steps():
    assert named_lines.spread_positions([50, 50], 10, 0, 100) == [45, 55]
    assert named_lines.spread_positions([50, 50, 50], 10, 0, 100) == [40, 50, 60]
    # All three move together: less the gaps below them they want 50, 40 and 40, whose mean is 130 / 3.
    assert named_lines.spread_positions([50, 50, 60], 10, 0, 100) == pytest.approx([130 / 3, 160 / 3, 190 / 3])
    assert named_lines.spread_positions([98, 99], 10, 0, 100) == [90, 100]
    assert named_lines.spread_positions([1, 1], 10, 0, 100) == [0, 10]


@pytest.mark.parametrize("wanted", [[3, 3, 4], [0, 1, 9], [8, 9, 9], [2, 5, 5]])
def test_no_places_on_a_fine_raster_are_nearer_to_those_wanted(wanted):
    gap, ends = 2, (0, 10)
    raster = [number / 4 for number in range(41)]
    allowed = [
        places
        for places in itertools.combinations(raster, 3)
        if places[1] - places[0] >= gap and places[2] - places[1] >= gap
    ]
    found = named_lines.spread_positions(wanted, gap, *ends)
    assert 0 <= found[0] < found[2] <= 10
    assert min(b - a for a, b in itertools.pairwise(found)) >= gap - 1e-9
    away = [sum((a - b) ** 2 for a, b in zip(places, wanted, strict=True)) for places in (found, *allowed)]
    assert away[0] <= min(away[1:]) + 1e-9


def test_arms_are_of_one_family_where_their_policies_score_by_one_class():
    assert (
        named_lines.scoring_families(LOCK | {"policies": {arm: {"scoring": one} for arm, one in PARTS.items()}}, "abc")
        == PARTS
    )
    older = {"a": "one", "b": "one", "c": "h2o", "swept": "swept"}
    assert named_lines.scoring_families(LOCK | {"policies": None}, [*"abc", "swept"]) == older
    assert named_lines.scoring_families(LOCK, "abc") == {arm: older[arm] for arm in "abc"}


def test_any_two_of_forty_arms_look_different_and_a_family_has_one_colour():
    families = {f"arm-{number}": f"family-{number // 2}" for number in range(40)}
    style = named_lines.styles("arm-7", families)
    looks = [(one["color"], str(one["linestyle"]), one["marker"]) for one in style.values()]
    assert len(set(looks)) == 40
    for one, other in itertools.combinations(families, 2):
        if families[one] == families[other] and "arm-7" not in (one, other):
            assert style[one]["color"] == style[other]["color"]
    assert [arm for arm in style if style[arm]["color"] == style["arm-7"]["color"]] == ["arm-7"]
    assert style["arm-7"]["linewidth"] > 2 * max(one["linewidth"] for arm, one in style.items() if arm != "arm-7")
