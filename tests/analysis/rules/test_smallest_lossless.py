"""Smallest lossless: budgets in a fixed sequence, every model at each of them, by hand."""

import pytest

from analysis.rules import RULES
from analysis.rules.rule import Contrast
from analysis.rules.self_test_cases import PlannedContrast
from analysis.rules.smallest_lossless import RULE, fixed_sequence
from analysis.rules.verdicts import CONFIRMED, INCONCLUSIVE, REFUTED
from analysis.stats.comparison import Margins

DECISION = {"alpha": "0.05", "margin": "0.03", "subject": "crystal", "against": ["full"]}
PASSES, FAILS, JUST, LOSES = (0.001, 0.01), (0.3, -0.01), (0.05, -0.005), (0.999, -0.0301)  # p, upper limit


def of(budget: str, found: tuple[float, float], *, model="qwen", arm="crystal", memory=0.5) -> Contrast:
    """A contrast in which the arm holds this share of the full cache's memory."""
    p, high = found
    return Contrast(
        model=model,
        task="chain",
        budget=budget,
        subject=arm,
        against="full",
        delta=high - 0.02,
        high=high,
        p=0.5,
        adjusted=1.0,
        matched=memory < 1 / 1.02,
        net=round(1000 * (high - 0.02)),
        lanes=1000,
        margins=Margins(high - 0.02, high - 0.04, high, p, 1.0),
        memory=memory,
    )


def found(contrasts: list[Contrast], **decision) -> tuple[str, list[tuple[str, list[tuple[str, bool]], str | None]]]:
    registered = DECISION | decision
    (report,) = RULE.report(contrasts, registered, 3).values()
    arms = [
        (one["arm"], [(step["budget"], step["passed"]) for step in one["steps"]], one["smallest"]) for one in report
    ]
    assert RULE.verdict(contrasts[::-1], registered) == RULE.verdict(contrasts, registered)
    return RULE.verdict(contrasts, registered), arms


@pytest.mark.parametrize(
    ("results", "tested", "smallest", "verdict"),
    [
        ({"160": PASSES, "128": PASSES, "96": PASSES}, "111", "96", CONFIRMED),
        ({"160": PASSES, "128": PASSES, "96": FAILS}, "110", "128", CONFIRMED),
        ({"160": PASSES, "128": PASSES, "96": LOSES}, "110", "128", CONFIRMED),
        # the first failure ends the sequence, whatever a smaller budget would show
        ({"160": PASSES, "128": FAILS, "96": PASSES}, "10", "160", CONFIRMED),
        ({"160": FAILS, "128": PASSES, "96": PASSES}, "0", None, INCONCLUSIVE),
        ({"160": LOSES, "128": PASSES, "96": PASSES}, "0", None, REFUTED),
        ({"160": FAILS, "128": LOSES, "96": LOSES}, "0", None, INCONCLUSIVE),
        ({"160": JUST, "128": FAILS, "96": FAILS}, "10", "160", CONFIRMED),
    ],
)
def test_budgets_are_tested_downwards_to_the_first_that_fails(results, tested, smallest, verdict):
    budgets = [(budget, passed == "1") for budget, passed in zip(("160", "128", "96"), tested, strict=False)]
    contrasts = [of(budget, each) for budget, each in results.items()]
    assert found(contrasts) == (verdict, [("crystal", budgets, smallest)])


def test_budgets_are_ordered_as_numbers_and_not_as_text():
    slots = [of(budget, PASSES) for budget in ("96", "1024", "256")]
    shares = [of(budget, PASSES) for budget in ("0.05", "0.5", "0.125")]
    assert [step.budget for step in fixed_sequence(slots, 0.05)] == ["1024", "256", "96"]
    assert [step.budget for step in fixed_sequence(shares, 0.05)] == ["0.5", "0.125", "0.05"]


def test_every_model_has_to_pass_at_a_budget_and_the_worst_is_named():
    contrasts = [
        of("160", PASSES, model="qwen", memory=0.60),
        of("160", JUST, model="llama", memory=0.64),
        of("128", PASSES, model="qwen"),
        of("128", FAILS, model="llama"),
    ]
    assert found(contrasts) == (CONFIRMED, [("crystal", [("160", True), ("128", False)], "160")])
    (one,) = RULE.report(contrasts, DECISION, 3)["smallest_lossless"]
    assert one["steps"][0] == {
        "budget": "160",
        "passed": True,
        "saves": True,
        "memory": "0.640000",
        "p": "0.050000",
        "model": "llama",
        "task": "chain",
    }
    assert (one["level"], one["memory"], one["steps"][1]["p"]) == ("0.050000", "0.640000", "0.300000")
    contrasts[1] = of("160", LOSES, model="llama")
    assert found(contrasts)[0] == REFUTED


# ---------------------------------------------------------------- what evicts nothing


def test_a_subject_that_is_the_full_cache_under_another_name_confirms_nothing():
    same = [of(budget, PASSES, memory=1.0) for budget in ("160", "128")]
    assert found(same) == (INCONCLUSIVE, [("crystal", [("160", True), ("128", True)], None)])


@pytest.mark.parametrize(
    ("largest", "smaller", "smallest", "verdict"),
    [
        (PASSES, PASSES, "128", CONFIRMED),  # passed through, and not the answer
        (PASSES, FAILS, None, INCONCLUSIVE),
        (PASSES, LOSES, None, REFUTED),  # the largest budget at which anything is saved
        (LOSES, PASSES, None, INCONCLUSIVE),
    ],
)
def test_a_budget_that_saves_nothing_is_passed_through_and_never_an_answer(largest, smaller, smallest, verdict):
    contrasts = [of("160", largest, memory=0.985), of("128", smaller, memory=0.8)]
    said, (own,) = found(contrasts)
    assert (said, own[2]) == (verdict, smallest)


def test_memory_has_to_be_saved_on_every_model():
    half = [of("160", PASSES, model="qwen", memory=0.5), of("160", PASSES, model="llama", memory=1.0)]
    assert found(half)[0] == INCONCLUSIVE
    lost = [half[0]._replace(margins=of("160", LOSES).margins), half[1]]
    assert found(lost)[0] == INCONCLUSIVE


# ---------------------------------------------------------------- several arms


def test_arms_share_alpha_and_the_word_is_about_the_subject():
    crystal = [of("160", (0.025, 0.01)), of("128", (0.026, 0.01))]
    h2o = [of("160", PASSES, arm="h2o"), of("128", PASSES, arm="h2o")]
    verdict, arms = found([*crystal, *h2o], others=["h2o"])
    assert verdict == CONFIRMED
    assert arms == [("crystal", [("160", True), ("128", False)], "160"), ("h2o", [("160", True), ("128", True)], "128")]
    assert found(crystal)[1] == [("crystal", [("160", True), ("128", True)], "128")]
    lost = [of("160", LOSES, arm="h2o"), of("128", LOSES, arm="h2o")]
    assert found([*crystal, *lost], others=["h2o"])[0] == CONFIRMED
    failed = [of("160", FAILS), of("128", FAILS)]
    assert found([*failed, *h2o], others=["h2o"])[0] == INCONCLUSIVE


def test_a_report_and_a_sequence_of_nothing_are_refused():
    with pytest.raises(ValueError, match="empty family"):
        RULE.verdict([], DECISION)
    with pytest.raises(ValueError, match="empty family"):
        RULE.report([], DECISION, 3)
    with pytest.raises(ValueError, match="empty family"):
        RULE.report([of("160", PASSES, arm="h2o")], DECISION, 3)


# ---------------------------------------------------------------- where CONFIRMED would be wrong


def test_a_loss_at_every_budget_of_every_arm_leaves_nothing_lossless():
    planned = [
        PlannedContrast(model, "chain", budget, "full", problems, arm)
        for arm in ("crystal", "h2o")
        for budget in ("160", "128")
        for model, problems in (("qwen", 250), ("llama", 200))
    ]
    assert RULE.lossy_indices(planned) == [1, 3, 5, 7]
    for name in ("equivalent", "non_inferior"):
        assert RULES[name].lossy_indices(planned) == [1]


# ---------------------------------------------------------------- what is said


def judged(**more) -> dict:
    steps = {"budget": "160", "passed": True, "saves": True, "memory": "0.640000", "p": "0.01"}
    own = {"arm": "crystal", "level": "0.050000", "steps": [steps], "smallest": "160", "memory": "0.640000"}
    rows = [{"subject": "crystal", "model": "qwen", "task": "chain", "budget": "160", "saves": True}]
    return {
        "verdict": CONFIRMED,
        "margin": "0.030000",
        "method": "t",
        "contrasts": [row | {"high_margin": "0.01"} for row in rows],
        "smallest_lossless": [own | more],
    }


def test_the_line_of_a_verdict_names_the_smallest_budget_and_its_memory():
    words = RULE.text
    assert words.line(judged()) == "crystal within 3.0 pp of the full cache down to 160 slots (64 % of its memory)"
    assert "down to a budget of 0.3 of the prompt" in words.line(judged(smallest="0.3"))
    assert words.line(judged(smallest=None, memory=None)) == (
        "crystal within 3.0 pp of the full cache is shown at no budget that saves memory"
    )
    incomplete = judged() | {"smallest_lossless": []}
    assert words.line(incomplete) == "crystal within 3.0 pp of the full cache, from the largest budget down"
    (fact,) = words.proves(judged())
    assert "crystal was worse than the full cache by less than 0.03 accuracy points down to 160 slots" in fact
    refuted = judged(smallest=None) | {"verdict": REFUTED}
    refuted["contrasts"][0]["high_margin"] = "-0.040000"
    (fact,) = words.proves(refuted)
    assert "worse than the full cache by more than 0.03 accuracy points in 1 of its contrasts" in fact
