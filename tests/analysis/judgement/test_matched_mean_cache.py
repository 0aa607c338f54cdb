"""The judge of today's studies: mean caches are matched one-sided, and an excess may have bought whatever the
comparator gains up to its next measurement.
"""

import json
from functools import partial

import pytest
import study

from analysis.compare import comparison, registered_study
from analysis.judge import judge
from analysis.judgement import contrasts, memory, study_files
from figures.drawing import formatting, verdict_formats

PROBLEMS = 300
SLOTS = {"64": 64.0, "124": 124.0, "128": 128.0, "132": 132.0, "full": 180.0}
ARMS = ("full", "crystal", "snapkv")


def lane(place, held, rights):
    """held: slots of an arm by (arm, budget), a number or a function of the problem; others hold SLOTS.
    rights: the problems that it answers, by (arm, budget), else by budget.
    """
    _, _, budget, arm, _, problem = place
    number = int(problem[1:])
    slots = held.get((arm, budget)) or SLOTS[budget]
    first, last = rights.get((arm, budget)) or rights[budget]
    slots = slots(number) if callable(slots) else slots
    grade = "correct" if first <= number < last else "wrong"
    return {"grade": grade, "cache": study.cache(slots)}


def judged(folder, held, rights, *, budgets=("64", "128"), arms=ARMS, lock=None, neighbours=(), **decision):
    content = study.content(**{"against": ["snapkv"], "at_least": 1, "method": "t"} | decision)
    content |= {"neighbours": list(neighbours)} if neighbours else {}
    content |= {"seeds": [0], "budgets": list(budgets), "arms": {arm: {"policy": arm} for arm in arms}}
    record = partial(lane, held=held, rights=rights)
    return judge(study.write(folder / "study", content, PROBLEMS, record, **{"judging": 2} | (lock or {})))


def row_at(found, budget):
    (row,) = [row for row in found["contrasts"] if row["budget"] == budget]
    return row


def sentences(found, words):
    return [sentence for sentence in found["does_not_prove"] if words in sentence]


CLIFF = {"64": (0, 36), "128": (0, 150), "full": (0, 264)}  # right of 300: 12, 50 and 88 %


def test_two_percent_more_on_a_cliff_buy_no_win(tmp_path):
    # A factor of 1.08 in memory from 12 to 88 %: 2 % more are 23 points at its middle.
    steep = CLIFF | {("crystal", "128"): (0, 219)}
    found = judged(tmp_path / "more", {("crystal", "128"): 1.02 * 128}, steep)
    row = row_at(found, "128")
    assert (found["verdict"], row["better"], row["matched"]) == ("INCONCLUSIVE", False, True)
    # 114 of 300 gained to the full cache: 38 points, and 2.25 standard errors (two contrasts) of 2.8.
    assert float(row["memory"]["swing"]) == pytest.approx(0.443, abs=0.004)
    assert row["memory"]["charge"] == row["memory"]["swing"]
    assert row["memory"]["decided"]
    assert judged(tmp_path / "equal", {}, steep)["verdict"] == "CONFIRMED"
    beyond = CLIFF | {("crystal", "128"): (0, 300)}
    assert judged(tmp_path / "beyond", {("crystal", "128"): 1.02 * 128}, beyond)["verdict"] == "INCONCLUSIVE"


def test_a_win_over_the_comparator_at_its_next_budget_is_no_matter_of_memory(tmp_path):
    # 64 beats all that the comparator has at 128.
    rights = CLIFF | {("crystal", "64"): (0, 220), ("crystal", "128"): (0, 150)}
    found = judged(tmp_path, {("crystal", "64"): 1.02 * 64}, rights)
    assert (found["verdict"], row_at(found, "64")["better"]) == ("CONFIRMED", True)


def test_a_loss_with_two_percent_less_on_a_cliff_refutes_nothing(tmp_path):
    rights = CLIFF | {("crystal", "128"): (0, 81)}
    assert judged(tmp_path / "equal", {}, rights)["verdict"] == "REFUTED"
    found = judged(tmp_path / "less", {("crystal", "128"): 128 / 1.02}, rights)
    assert (found["verdict"], row_at(found, "128")["worse"]) == ("INCONCLUSIVE", False)
    # Worse than the comparator at 64, which holds half.
    worst = CLIFF | {"64": (0, 120), ("crystal", "128"): (290, 291)}
    assert judged(tmp_path / "worst", {("crystal", "128"): 128 / 1.02}, worst)["verdict"] == "REFUTED"


def test_more_memory_than_anything_that_was_measured_does_not_match(tmp_path):
    rights = CLIFF | {("crystal", "128"): (0, 300)}
    found = judged(tmp_path, {("crystal", "128"): 128.1}, rights, arms=("crystal", "snapkv"))
    row = row_at(found, "128")
    assert (found["verdict"], row["matched"], row["memory"]["swing"]) == ("INCONCLUSIVE", False, None)
    assert sentences(found, "contrasts: the subject held more, and its comparator was")
    assert not sentences(found, "not matched within")
    same = judged(tmp_path / "same", {}, rights, arms=("crystal", "snapkv"))
    assert same["verdict"] == "CONFIRMED"


@pytest.mark.parametrize("share", [0.97, 0.6])
def test_a_subject_that_holds_less_and_wins_is_better(tmp_path, share):
    rights = CLIFF | {("crystal", "128"): (0, 225)}
    found = judged(tmp_path, {("crystal", "128"): share * 128}, rights)
    row = row_at(found, "128")
    assert (found["verdict"], row["better"], row["matched"]) == ("CONFIRMED", True, True)
    assert sentences(found, "mean slots by -")
    assert (
        judged(tmp_path / "shipped", {("crystal", "128"): share * 128}, rights, lock={"judging": 1})["verdict"]
        == "INCONCLUSIVE"
    )


def test_means_decide_and_not_single_problems(tmp_path):
    # Half of the problems end early in one arm, half in the other: equal means, far apart one by one.
    spread = {("crystal", "128"): lambda number: (1.1 if number % 2 else 0.9) * 128}
    found = judged(tmp_path, spread, CLIFF | {("crystal", "128"): (0, 225)})
    row = row_at(found, "128")
    assert (found["verdict"], row["matched"], row["memory"]["apart"]) == ("CONFIRMED", True, "0.100000")
    assert sentences(found, "single problems by 10 % of slots")


def test_more_than_the_tolerance_does_not_match(tmp_path):
    rights = CLIFF | {("crystal", "128"): (0, 300)}
    found = judged(tmp_path, {("crystal", "128"): 1.021 * 128}, rights)
    assert (found["verdict"], row_at(found, "128")["matched"]) == ("INCONCLUSIVE", False)
    assert sentences(found, "not matched within 0.02")


SIZES = {"slot_bytes": {"tiny": {"heads": 4, "width": 32, "arms": {arm: {"bytes": 256} for arm in ARMS}}}}


@pytest.mark.parametrize("memory", ["bytes", "total"])
def test_bytes_are_those_held_and_room_is_told_beside(tmp_path, memory):
    """A schedule reserves room for its largest budget, 30 % more than it holds on average."""

    def measured(place):
        _, _, budget, arm, _, _ = place
        made = lane(place, {}, CLIFF | {("crystal", "128"): (0, 225)})
        room = int(4 * 256 * SLOTS[budget] * (1.3 if arm == "crystal" else 1.0))
        return made | {"cache": study.cache(SLOTS[budget]) | {"mean_bytes": room}}

    content = study.content(against=["snapkv"], at_least=1, method="t", memory=memory)
    content |= {"seeds": [0], "budgets": ["64", "128"], "arms": {arm: {"policy": arm} for arm in ARMS}}
    found = judge(study.write(tmp_path / "new", content, PROBLEMS, measured, judging=2, **SIZES))
    row = row_at(found, "128")
    assert (found["verdict"], row["matched"], row["cache_ratio"]) == ("CONFIRMED", True, "1.000000")
    assert float(row["memory"]["ratios"]["bytes"]) == pytest.approx(1.3, abs=1e-3)
    assert sentences(found, "mean bytes with the room reserved for tokens to come by +30.00 %")
    shipped = judge(study.write(tmp_path / "shipped", content, PROBLEMS, measured, **SIZES))
    assert row_at(shipped, "128")["matched"] is False


def test_beyond_the_tolerance_iso_cache_lets_a_win_exceed_the_next_budget(tmp_path):
    # 80 slots of nominal 64: the next measurement is that at 128, right on half.
    held = {("crystal", "64"): 80.0}
    for right, verdict in ((170, "INCONCLUSIVE"), (240, "CONFIRMED")):
        rights = CLIFF | {("crystal", "64"): (0, right)}
        found = judged(tmp_path / str(right), held, rights, unmatched="iso-cache", memory="slots")
        assert found["verdict"] == verdict
        row = row_at(found, "64")
        assert (row["matched"], row["better"]) == (True, verdict == "CONFIRMED")
        # A quarter of the way from 12 to 50 %.
        assert float(row["isocache"]["interpolated"]["difference"]) == pytest.approx(right / 300 - 0.215)
        assert sentences(found, "judged as iso-cache: the subject held up to +25.00 %")
    assert judged(tmp_path / "void", held, rights)["verdict"] == "INCONCLUSIVE"


def test_beyond_the_grid_iso_cache_decides_nothing(tmp_path):
    found = judged(tmp_path, {("crystal", "128"): 190.0}, CLIFF | {("crystal", "128"): (0, 300)}, unmatched="iso-cache")
    assert (found["verdict"], row_at(found, "128")["matched"]) == ("INCONCLUSIVE", False)


# Neighbours: right of 300 at 64, 128 and full: 12, 50 and 88 %; at 124 and 132 as at 128, unless a test says else.
NEAR = CLIFF | {"124": (0, 150), "132": (0, 150)}
WON = {("crystal", "128"): (0, 210)}  # 20 points over 128
NUMBERS = ("p", "p_t", "p_holm", "low_simultaneous", "high_simultaneous", "better", "worse")


def test_a_win_that_the_next_budget_would_take_stands_where_a_near_neighbour_gains_nothing(tmp_path):
    more = {("crystal", "128"): 1.01 * 128}
    assert judged(tmp_path / "charged", more, NEAR | WON)["verdict"] == "INCONCLUSIVE"
    found = judged(tmp_path / "tested", more, NEAR | WON, neighbours=["132"])
    row = row_at(found, "128")
    assert (found["verdict"], row["memory"]["neighbour"], row["memory"]["decided"]) == ("CONFIRMED", "132", False)
    equal = row_at(judged(tmp_path / "equal", {}, NEAR | WON), "128")
    assert {name: row[name] for name in NUMBERS} == {name: equal[name] for name in NUMBERS}


@pytest.mark.parametrize("excess", [0.0005, 0.004, 0.02])
def test_a_cliff_between_a_budget_and_its_neighbour_buys_no_win(tmp_path, excess):
    """The subject is the comparator with a little more memory: it stands on the cliff, as the neighbour does."""
    steep = NEAR | {"132": (0, 264), ("crystal", "128"): (0, 264)}
    found = judged(tmp_path, {("crystal", "128"): (1 + excess) * 128}, steep, neighbours=["132"])
    row = row_at(found, "128")
    assert (found["verdict"], row["better"], row["p"]) == ("INCONCLUSIVE", False, "1.000000")
    assert (row["memory"]["swing"], row["memory"]["charge"], row["memory"]["decided"]) == ("0.380000", "0.380000", True)
    assert (float(row["low_simultaneous"]) <= 0, row["difference"]) == (True, "0.380000")
    (sentence,) = sentences(found, "A difference at equal memory in 1 of 2 contrasts")
    assert "slots, not so against the comparator at 132)" in sentence


def test_a_neighbour_is_tested_and_nothing_charged_in_what_is_printed(tmp_path):
    rights = NEAR | WON | {"132": (0, 160)}
    found = judged(tmp_path / "tested", {("crystal", "128"): 129.0}, rights, neighbours=["132"])
    assert [formatting.memory_charge(row) for row in found["contrasts"]] == ["", "none: at 132 too"]
    (number,) = [row for row in verdict_formats.number_rows(found["contrasts"]) if row["budget"] == "128"]
    assert (number["charge"], number["neighbour"]) == (None, "132")


def test_what_is_printed_holds_against_both(tmp_path):
    """p, and the ends of the simultaneous interval: those of two studies at equal memory, whichever is worse."""
    rights = NEAR | {"132": (0, 180), ("crystal", "128"): (0, 210)}
    row = row_at(judged(tmp_path / "both", {("crystal", "128"): 129.0}, rights, neighbours=["132"]), "128")
    low, high = (
        row_at(judged(tmp_path / name, {}, rights | {"128": (0, right)}), "128")
        for name, right in (("here", 150), ("there", 180))
    )
    assert (row["p"], row["difference"], row["low"]) == (high["p"], low["difference"], low["low"])
    assert (row["low_simultaneous"], row["high_simultaneous"]) == (high["low_simultaneous"], low["high_simultaneous"])


def test_a_loss_with_less_memory_has_to_hold_against_a_neighbour_below(tmp_path):
    less, lost = {("crystal", "128"): 127.0}, {("crystal", "128"): (0, 90)}
    assert judged(tmp_path / "charged", less, NEAR | lost)["verdict"] == "INCONCLUSIVE"
    found = judged(tmp_path / "tested", less, NEAR | lost, neighbours=["124", "132"])
    assert (found["verdict"], row_at(found, "128")["memory"]["neighbour"]) == ("REFUTED", "124")
    cliff = NEAR | lost | {"124": (0, 90)}
    found = judged(tmp_path / "cliff", less, cliff, neighbours=["124", "132"])
    assert (found["verdict"], row_at(found, "128")["worse"]) == ("INCONCLUSIVE", False)


def test_a_neighbour_that_holds_too_little_leaves_the_charge(tmp_path):
    more = {("crystal", "128"): 1.02 * 128, ("snapkv", "132"): 130.0}
    row = row_at(judged(tmp_path, more, NEAR | WON, neighbours=["132"]), "128")
    assert ("neighbour" in row["memory"], row["better"], row["memory"]["decided"]) == (False, False, True)


@pytest.mark.parametrize(("slots", "is_tested"), [(135.0, True), (136.0, False)])
def test_a_neighbour_that_is_further_away_than_five_percent_leaves_the_charge(tmp_path, slots, is_tested):
    """129 x 1.05 = 135.45."""
    more = {("crystal", "128"): 129.0, ("snapkv", "132"): slots}
    row = row_at(judged(tmp_path, more, NEAR | WON, neighbours=["132"]), "128")
    assert ("neighbour" in row["memory"]) == is_tested


def test_who_does_not_test_the_neighbour_gets_the_charge(tmp_path):
    """A claim about an arm tests no neighbour: what that gains as measured has no error, and would be too little."""
    judged(tmp_path, {("crystal", "128"): 129.0}, NEAR | WON, neighbours=["132"])
    read = study_files.read_study(tmp_path / "study")
    (pairing,) = (each for each in contrasts.pair_arms(read, [("crystal", "snapkv")]) if each.budget == "128")
    charged, tested = (
        memory.contrast_memory(pairing, read.columns_by_arm(), read.lock, 0.05, has_neighbours=has_neighbours)
        for has_neighbours in (False, True)
    )
    assert (charged.neighbour, charged.null > 0.01, tested.neighbour.budget, tested.null) == (None, True, "132", 0.0)


@pytest.mark.parametrize("method", ["restricted-likelihood", "bootstrap", "max-t", "sign-flip"])
def test_every_method_has_to_win_twice(tmp_path, method):
    more = {("crystal", "128"): 129.0}
    drawn = {} if method == "restricted-likelihood" else {"draws": 1000, "seed": 1}
    asked = {"neighbours": ["132"], "method": method, **drawn}
    assert judged(tmp_path / "won", more, NEAR | WON, **asked)["verdict"] == "CONFIRMED"
    steep = NEAR | WON | {"132": (0, 206)}
    found = judged(tmp_path / "lost", more, steep, **asked)
    row = row_at(found, "128")
    assert (found["verdict"], row["better"]) == ("INCONCLUSIVE", False)
    assert float(row["p_decisive"] if method == "max-t" else row["p"]) > 0.025
    assert float(row["low_simultaneous"]) <= 0


def test_no_inferiority_is_shown_against_a_neighbour_too(tmp_path):
    near = NEAR | {("crystal", "128"): (0, 150)}
    asked = {"neighbours": ["132"], "rule": "non_inferior", "margin": "0.05", "at_least": None, "budgets": ("128",)}
    more = {("crystal", "128"): 129.0}
    assert judged(tmp_path / "flat", more, near, **asked)["verdict"] == "CONFIRMED"
    found = judged(tmp_path / "steep", more, near | {"132": (0, 165)}, **asked)
    row = row_at(found, "128")
    assert (found["verdict"], row["memory"]["decided"], float(row["low_margin"]) < -0.05) == (
        "INCONCLUSIVE",
        True,
        True,
    )


MARGIN = {"rule": "non_inferior", "margin": "0.05", "at_least": None}


@pytest.mark.parametrize(("asked", "right"), [({}, 210), (MARGIN, 156)])
def test_a_look_is_not_beyond_its_boundary_where_the_neighbour_says_the_contrary(tmp_path, asked, right):
    """Ahead of the comparator at the budget, far behind it at the neighbour."""
    looks = {"looks": [200, 300], "spending": "obrien-fleming", "budgets": ("128",), "neighbours": ["132"]}
    rights = NEAR | {("crystal", "128"): (0, right), "132": (0, 264)}
    more = {("crystal", "128"): 129.0}
    found = judged(tmp_path, more, rights, **looks, **asked | {"method": "restricted-likelihood"})
    row = row_at(found, "128")
    assert (row["better"], row["memory"]["neighbour"]) == (False, "132")
    z, boundary = (float(row["look"][name]) for name in ("z", "boundary"))
    assert z < -boundary if asked else z == 0


def test_a_comparison_of_a_judged_study_leaves_its_neighbours_out(tmp_path):
    """The subject has no lane there: `compare` would call the study incomplete."""
    found = judged(tmp_path, {("crystal", "128"): 129.0}, NEAR | WON, neighbours=["132"])
    (tmp_path / "study" / "verdict.json").write_text(json.dumps({"judged": found}))
    read = registered_study.study_rows(tmp_path / "study")
    compared = comparison.compare(read.rows, subject=read.subject)
    assert {contrast.task for contrast in compared.contrast_list} == {"needle tiny budget 64", "needle tiny budget 128"}


def test_a_neighbour_whose_lanes_all_failed_is_tested_by_nobody(tmp_path):
    content = study.content(against=["snapkv"], at_least=1, method="t", missing="wrong")
    content |= {"seeds": [0], "budgets": ["128"], "neighbours": ["132"], "arms": {arm: {"policy": arm} for arm in ARMS}}

    def record(place):
        ended = study.FAILED if place[2:4] == ("132", "snapkv") else {}
        return lane(place, {("crystal", "128"): 129.0}, NEAR | WON) | ended

    row = row_at(judge(study.write(tmp_path / "study", content, PROBLEMS, record, judging=3)), "128")
    assert ("neighbour" in row["memory"], float(row["memory"]["charge"]) > 0) == (False, True)


def test_the_full_cache_beside_another_comparator_is_no_arm_that_held_more_by_mistake(tmp_path):
    asked = {"against": ["full", "snapkv"], "rule": "non_inferior", "margin": "0.05", "at_least": None}
    rights = NEAR | {("crystal", "128"): (0, 150)}
    found = judged(tmp_path, {("crystal", "128"): 129.0}, rights, budgets=("128",), neighbours=["132"], **asked)
    assert [row["against"] for row in found["contrasts"]] == ["full", "snapkv"]
    about_full = sentences(found, "against full")
    assert [sentence.partition(":")[0] for sentence in about_full] == ["Less memory by every measure"]
    assert sentences(found, "differed in mean slots by +0.78 % (tiny needle at 128 against snapkv)")


def test_a_budget_that_is_nearer_than_a_neighbour_is_tested(tmp_path):
    """At 132, a budget, the comparator is where the subject is; at 180, a neighbour, it is as bad as at 128."""
    more = {("crystal", "128"): 129.0, ("snapkv", "180"): 180.0}
    rights = NEAR | WON | {"132": (0, 206), "180": (0, 150)}
    found = judged(tmp_path, more, rights, budgets=("128", "132"), neighbours=["180"])
    row = row_at(found, "128")
    assert (found["verdict"], row["memory"]["neighbour"], row["better"]) == ("INCONCLUSIVE", "132", False)
