"""The real judge on arms that did not hold the same: memory buys no win, and less of it no loss."""

from functools import partial

import pytest
import study

from analysis.judge import judge

PROBLEMS = 300
LARGE, SMALL = 128.0, 64.0


def lane(place, own, other, gained, lost, held, elsewhere, full):
    """A lane of two budgets. own, other: slots at 128; held: changes of the cache by arm; elsewhere: accuracy
    of the comparator at 64, full: of the full cache.
    """
    _, _, budget, arm, _, problem = place
    number = int(problem[1:])
    if arm == "full":
        right, slots = number < full * PROBLEMS, 180.0
    elif budget == "64":
        right, slots = number < elsewhere * PROBLEMS, SMALL
    else:
        # The comparator is right on half; the subject also on `gained` and not on the first `lost`.
        half = PROBLEMS // 2
        right = lost <= number < half + gained if arm == "crystal" else number < half
        slots = own(number) if arm == "crystal" else other
    changed = held.get((arm, budget), {})
    return {"grade": "correct" if right else "wrong", "cache": study.cache(slots) | changed}


def judged(
    folder,
    own=lambda number: LARGE,
    *,
    other=LARGE,
    gained=0,
    lost=0,
    held=None,
    elsewhere=0.5,
    full=0.8,
    budgets=("64", "128"),
    arms=("full", "crystal", "snapkv"),
    **decision,
):
    content = study.content(**{"against": ["snapkv"], "at_least": 1, "method": "t"} | decision)
    content |= {"seeds": [0], "budgets": list(budgets), "arms": {arm: {"policy": arm} for arm in arms}}
    given = {"own": own, "other": other, "gained": gained, "lost": lost, "held": held or {}}
    record = partial(lane, **given, elsewhere=elsewhere, full=full)
    return judge(study.write(folder / "study", content, PROBLEMS, record))


def last(found):
    return found["contrasts"][-1]


def told(found, word):
    return [sentence for sentence in found["does_not_prove"] if word in sentence]


# Nine problems of 300 gained and none lost: t = 3.04, p = .0025, below .05 / 2.
NINE = {"gained": 9}


def test_a_win_of_three_points_at_equal_memory_confirms(tmp_path):
    found = judged(tmp_path, **NINE)
    assert (found["verdict"], last(found)["better"]) == ("CONFIRMED", True)
    assert last(found)["memory"]["charge"] == "0.000000"
    assert told(found, "memory may") == told(found, "every sense") == []


def test_two_percent_more_memory_on_a_slope_of_0_87_points_do_not_confirm(tmp_path):
    # The full cache solves 286 with 180 slots: 45.3 points in 52 slots, so that 2.56 slots more buy 2.2.
    found = judged(tmp_path, lambda number: 1.02 * LARGE, **NINE, full=286 / 300)
    assert found["verdict"] == "INCONCLUSIVE"
    row = last(found)
    assert (row["better"], row["matched"], row["p"]) == (False, True, "1.000000")
    assert float(row["memory"]["slope"]) == pytest.approx(136 / 300 / 52, rel=1e-3)
    assert float(row["memory"]["charge"]) == pytest.approx(2 * 136 / 300 / 52 * 2.56, abs=1e-6)
    assert row["memory"]["decided"]
    assert float(row["low_simultaneous"]) < 0 < float(row["low"])
    (said,) = told(found, "may have bought")
    assert said == (
        "A difference at equal memory in 1 of 2 contrasts, where unequal memory may have bought it: tiny "
        "needle at 128 against snapkv (+2.00 % slots, up to 4.5 pp)."
    )


def test_a_win_that_is_larger_than_what_memory_buys_is_one(tmp_path):
    # 1 % more costs 2 points; 30 problems are 10.
    found = judged(tmp_path, lambda number: 1.01 * LARGE, gained=30)
    assert found["verdict"] == "CONFIRMED"
    assert float(last(found)["memory"]["charge"]) == pytest.approx(0.02)


def test_a_subject_that_holds_less_is_not_charged_for_a_win(tmp_path):
    found = judged(tmp_path, lambda number: 0.985 * LARGE, **NINE)
    assert found["verdict"] == "CONFIRMED"
    assert float(last(found)["memory"]["charge"]) == pytest.approx(-0.03)


def test_a_loss_that_less_memory_may_cost_does_not_refute(tmp_path):
    # Nine of 300 lost: significant at equal memory.
    assert judged(tmp_path / "equal", lost=9)["verdict"] == "REFUTED"
    found = judged(tmp_path, lambda number: 0.985 * LARGE, lost=9)
    assert (found["verdict"], last(found)["worse"]) == ("INCONCLUSIVE", False)
    assert float(last(found)["high_simultaneous"]) > 0 > float(last(found)["high"])
    assert judged(tmp_path / "more", lambda number: 1.015 * LARGE, lost=9)["verdict"] == "REFUTED"


def test_a_margin_is_narrower_by_what_more_memory_may_have_bought(tmp_path):
    rule = {"rule": "non_inferior", "margin": "0.03", "at_least": None}
    assert judged(tmp_path / "equal", **rule)["verdict"] == "CONFIRMED"
    assert judged(tmp_path / "less", lambda number: 0.985 * LARGE, **rule)["verdict"] == "CONFIRMED"
    found = judged(tmp_path, lambda number: 1.02 * LARGE, **rule)
    assert found["verdict"] == "INCONCLUSIVE"
    assert float(last(found)["low_margin"]) < -0.04
    assert told(found, "may have bought")


def test_where_nothing_shows_a_slope_only_less_memory_wins(tmp_path):
    alone = {"budgets": ("128",), "arms": ("crystal", "snapkv")}
    for at, held, verdict in (("more", 1.0001, "INCONCLUSIVE"), ("same", 1, "CONFIRMED"), ("less", 0.999, "CONFIRMED")):
        found = judged(tmp_path / at, lambda number, held=held: held * LARGE, gained=100, **alone)
        assert found["verdict"] == verdict, at
        assert bool(told(found, "without a full cache")) == (at != "same")
    assert last(found)["memory"]["slope"] is last(found)["memory"]["charge"] is None


def test_half_of_the_problems_at_twice_the_memory_and_half_at_none_do_not_match(tmp_path):
    # (1.9 + 0.1) / 2 = 1.
    found = judged(tmp_path, lambda number: (1.9 if number % 2 else 0.1) * LARGE, gained=100)
    assert last(found)["cache_ratio"] == "1.000000"
    assert last(found)["memory"]["apart"] == "0.900000"
    assert (last(found)["matched"], found["verdict"]) == (False, "INCONCLUSIVE")
    assert told(found, "were not matched within 0.02")


MORE = {("crystal", "128"): {"mean_bytes": 1100}}
STATE = {("crystal", "128"): {"state_bytes": 200}}


@pytest.mark.parametrize(
    ("memory", "held", "fair"),
    [
        ("slots", MORE, True),
        ("bytes", MORE, False),
        ("total", MORE, False),
        ("slots", STATE, True),
        ("bytes", STATE, True),
        ("total", STATE, False),
    ],
)
def test_what_is_registered_as_memory_decides(tmp_path, memory, held, fair):
    found = judged(tmp_path, memory=memory, held=held, gained=100)
    assert last(found)["matched"] is fair
    assert (found["verdict"] == "CONFIRMED") is fair
    assert last(found)["memory"]["by"] == memory
    (said,) = told(found, "every sense")
    word = "mean bytes by +10.00 %" if held is MORE else "own state (as a share of the cache) by +20.00 %"
    assert word in said


def reads(subject):
    """Slots read by arm and budget: 61 and 125 by the comparator, 177 by the full cache."""
    by_cell = {("snapkv", "64"): 61, ("snapkv", "128"): 125, ("crystal", "64"): 61, ("crystal", "128"): subject}
    return {cell: {"reads": f"{count:.6f}"} for cell, count in (by_cell | {("full", "full"): 177}).items()}


@pytest.mark.parametrize(("subject", "is_fair"), [(125, True), (123, True), (127.5, True), (130, False)])
def test_at_equal_reads_an_arm_may_hold_three_times_as_much(tmp_path, subject, is_fair):
    """Two per cent more may be read: 125 x 1.02 = 127.5. What is held decides nothing."""
    found = judged(tmp_path, lambda number: 3 * LARGE, memory="reads", held=reads(subject), gained=100)
    assert last(found)["matched"] is is_fair
    assert (found["verdict"] == "CONFIRMED") is is_fair
    assert float(last(found)["cache_ratio"]) == pytest.approx(subject / 125, abs=1e-6)
    assert last(found)["memory"]["by"] == "reads"
    assert "mean slots by +200.00 %" in "".join(told(found, "every sense"))
    if subject == 127.5:  # 2 % more, on a slope of 30 points between 125 and 177
        assert float(last(found)["memory"]["charge"]) > 0


def test_an_arm_that_read_more_is_told_as_one_that_read(tmp_path):
    alone = {"budgets": ("128",), "arms": ("crystal", "snapkv"), "memory": "reads"}
    found = judged(tmp_path, held=reads(126), **alone)
    (sentence,) = told(found, "without a full cache")
    assert "the arm that read more cannot win" in sentence


def test_unequal_memory_is_told_in_every_sense_and_only_where_it_is(tmp_path):
    held = {
        ("crystal", "128"): {"peak": "200.000000", "granted": [140, 118]},
        ("snapkv", "128"): {"peak": "160.000000", "granted": [128]},
    }
    (said,) = told(judged(tmp_path, held=held), "every sense")
    assert said == (
        "Equal memory in every sense; at most, the subject differed in peak slots by +25.00 % (tiny needle at 128 "
        "against snapkv); the budgets that the cadence granted by +0.78 % (tiny needle at 128 against snapkv)."
    )
    # 0.1 % goes without saying, a little more does not.
    for share in (1.0009, 0.9991):
        quiet = judged(tmp_path / f"quiet {share}", lambda _, share=share: share * LARGE)
        assert told(quiet, "every sense") == []
    assert told(judged(tmp_path / "loud", lambda _: 1.002 * LARGE), "mean slots by +0.20 %")


def test_a_slope_that_was_measured_far_away_is_told(tmp_path):
    # The full cache holds 180 slots: within twice 128, and not within twice 85.
    alone = {"budgets": ("128",)}
    near = judged(tmp_path / "near", lambda _: 1.01 * LARGE, **alone)
    far = judged(tmp_path / "far", lambda _: 86.0, other=85.0, **alone)
    assert told(near, "half and twice") == []
    assert told(far, "half and twice")


def beside_a_win(folder, held, at, *, rule="superior", models=("tiny",), **decision):
    """The subject wins 40 of 300 problems at 128, on the last model one alone. At 64 there it loses ten, and
    holds `held` of what the comparator does at `at`.
    """
    content = study.content(**{"rule": rule, "against": ["snapkv"], "method": "t"} | decision)
    arms = {arm: {"policy": arm} for arm in ("full", "crystal", "snapkv")}
    content |= {"seeds": [0], "budgets": ["64", "128"], "models": list(models), "arms": arms}

    def record(place):
        model, _, budget, arm, _, problem = place
        number, slots = int(problem[1:]), {"full": 256.0, "64": SMALL, "128": LARGE}[budget]
        right = PROBLEMS if arm == "full" else 200
        if arm == "crystal" and budget == "128":
            right = 240 if model == models[0] else 201
        elif arm == "crystal" and model == models[-1]:
            right = 190
        if arm == "crystal" and budget == at and model == models[-1]:
            slots *= held
        return {"grade": "correct" if number < right else "wrong", "cache": study.cache(slots)}

    return judge(study.write(folder / "study", content, PROBLEMS, record))


BRANCH = {"rule": "branch", "models": ("qwen", "llama"), "primary_model": "qwen", "transfer_model": "llama"}


@pytest.mark.parametrize("rule", [{"at_least": 1}, BRANCH], ids=["superior", "branch"])
def test_less_memory_where_the_subject_loses_does_not_make_it_harmless(tmp_path, rule):
    assert beside_a_win(tmp_path / "equal", 1.0, "64", **rule)["verdict"] == "REFUTED"
    found = beside_a_win(tmp_path / "less", 0.981, "64", **rule)
    assert (found["verdict"], found["proves"]) == ("INCONCLUSIVE", [])
    if found["branch"]:  # one lane won and ten lost on the transfer model
        assert found["branch"] == {"registered": "B", "symmetric": "B"}


def test_a_win_with_twice_the_memory_is_not_called_better(tmp_path):
    found = beside_a_win(tmp_path, 2.0, "128", at_least=1)
    assert (last(found)["matched"], last(found)["better"]) == (False, False)
    assert found["verdict"] == "REFUTED"  # by the loss at 64
    assert not [said for said in found["proves"] if "more accurate" in said]
