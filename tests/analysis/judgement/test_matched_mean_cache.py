"""The judge of today's studies: mean caches are matched one-sided, and an excess may have bought whatever the
comparator gains up to its next measurement.
"""

from functools import partial

import pytest
import study

from analysis.judge import judge

PROBLEMS = 300
SLOTS = {"64": 64.0, "128": 128.0, "full": 180.0}
ARMS = ("full", "crystal", "snapkv")


def lane(place, held, rights):
    """held: slots of an arm by (arm, budget), a number or a function of the problem; others hold SLOTS.
    rights: the problems that it answers, by (arm, budget), else by budget.
    """
    _, _, budget, arm, _, problem = place
    number = int(problem[1:])
    slots = held.get((arm, budget), SLOTS[budget])
    first, last = rights.get((arm, budget)) or rights[budget]
    slots = slots(number) if callable(slots) else slots
    grade = "correct" if first <= number < last else "wrong"
    return {"grade": grade, "cache": study.cache(slots)}


def judged(folder, held, rights, *, budgets=("64", "128"), arms=ARMS, lock=None, **decision):
    content = study.content(**{"against": ["snapkv"], "at_least": 1, "method": "t"} | decision)
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
    assert sentences(found, "the subject held more, and its comparator was measured nowhere with as much")
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
