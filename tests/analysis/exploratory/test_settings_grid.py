import itertools
import re

import pytest

from analysis.exploratory.settings_grid import NoGrid, build_grid


def arm(p, decay, **more):
    part = {"scoring": "policies.crystal_kv.Recency()", "cadence": "policies.cadence.Cadence()"}
    return part | {"cadence.interval": "16", "scoring.p": p, "scoring.decay": decay} | more


def arms(ps=("0.5", "0.9"), decays=("0.1", "0.5", "1.0")):
    return {f"p{p}-d{d}": arm(p, d) for p, d in itertools.product(ps, decays)}


OTHER = {"scoring": "policies.h2o.Mass()", "cadence": "policies.cadence.Cadence()", "cadence.interval": "16"}


def test_every_pair_of_values_has_its_arm_and_more_values_stand_across():
    found = build_grid(arms())
    assert (found.rows, found.down) == ("scoring.p", ["0.5", "0.9"])
    assert (found.columns, found.across) == ("scoring.decay", ["0.1", "0.5", "1.0"])
    assert found.arms["0.9", "0.1"] == "p0.9-d0.1"
    assert len(found.arms) == 6
    assert found.other_arms == []


@pytest.mark.parametrize("given", [{"rows": "scoring.decay"}, {"columns": "scoring.p"}])
def test_which_stands_where_can_be_said(given):
    found = build_grid(arms(), **given)
    assert (found.rows, found.columns) == ("scoring.decay", "scoring.p")
    assert found.arms["0.1", "0.9"] == "p0.9-d0.1"


def test_numbers_ascend_and_words_stand_as_registered():
    assert build_grid(arms(decays=("10", "9.5", "0.25"))).across == ["0.25", "9.5", "10"]
    assert build_grid(arms(decays=("'text'", "'code'", "None"))).across == ["'text'", "'code'", "None"]


def test_arms_of_other_parts_and_a_second_arm_of_the_same_settings_stand_beside():
    found = build_grid({"h2o": OTHER, **arms(), "lite": arm("0.9", "0.5")})
    assert found.other_arms == ["h2o", "lite"]
    assert found.arms["0.9", "0.5"] == "p0.9-d0.5"


def test_two_arms_of_another_make_that_differ_in_two_settings_are_no_second_grid():
    pair = {"a": OTHER | {"scoring.x": "1", "scoring.y": "1"}, "b": OTHER | {"scoring.x": "2", "scoring.y": "2"}}
    assert build_grid(pair | arms()).other_arms == ["a", "b"]


def refused(held, said, **given):
    with pytest.raises(NoGrid, match=re.escape(said)) as refusal:
        build_grid(held, **given)
    assert "\n" not in str(refusal.value)


def test_arms_that_form_no_grid_are_refused_by_what_varies():
    one = {"a": arm("0.5", "0.1"), "b": arm("0.9", "0.1")}
    refused(one, "arms: they form no grid over two settings; settings that vary among a, b: scoring.p")
    three = arms() | {"c": arm("0.5", "0.1", **{"cadence.interval": "8"})}
    refused(three, "cadence.interval, scoring.p, scoring.decay")
    refused({"a": arm("0.5", "0.1"), "h2o": OTHER}, "arms: no two arms consist of the same parts; a grid needs")
    refused({"a": arm("0.5", "0.1"), "b": arm("0.5", "0.1")}, "among a, b: nothing")


def test_a_grid_with_a_hole_is_refused_by_the_pair_that_is_missing():
    held = arms()
    del held["p0.9-d0.5"]
    refused(held, "arms: no arm has scoring.p 0.9 with scoring.decay 0.5; a grid needs an arm for every pair of values")


def test_two_grids_and_settings_that_nobody_has_are_refused():
    second = {f"x-{name}": one | {"routing": "policies.routing.Other()"} for name, one in arms().items()}
    refused(arms() | second, "arms: they form more than one grid")
    refused(arms(), "scoring.weight: no arm has this setting", columns="scoring.weight")
    refused(
        arms(), "they form no grid over cadence.interval; settings that vary among p0.5-d0.1", rows="cadence.interval"
    )
    refused(arms(), "scoring.p: is given for both rows and columns", rows="scoring.p", columns="scoring.p")
