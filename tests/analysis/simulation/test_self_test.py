"""A rule is tried on studies whose verdict is known, and refused by the name of what it does not notice."""

import re
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Any

import pandas as pd
import pytest
import study
from sampled import sampled

from analysis import rules
from analysis.judgement import contrasts as compared
from analysis.judgement import judgement, missing_bounds
from analysis.judgement.study_table import NOT_RUN, Study
from analysis.rules.rule import Contrast
from analysis.rules.self_test_cases import EndedLanes, Outcome, Scenario
from analysis.rules.verdicts import CONFIRMED, INCONCLUSIVE, REFUTED
from analysis.simulation import self_test
from analysis.simulation.simulated_studies import StudyPlan, planned_contrasts
from analysis.simulation.simulated_studies import simulate_study as made_up
from analysis.stats import memory_matching
from analysis.stats.methods import MARGIN_METHODS

ARMS = ("snapkv", "h2o", "streaming")


def plan(content: dict[str, Any], problems: int = 14) -> StudyPlan:
    ids = [f"p{number:03d}" for number in range(problems)]
    chance = {} if "margin" in content["decision"] else {"needle": "0.5"}
    return StudyPlan(content, study.cells(content), study.items(content, ids), chance=chance)


def superior(problems: int = 14, **decision: Any) -> StudyPlan:
    """Crystal against three arms at two budgets: six contrasts, two of which have to be won."""
    content = study.content(**{"against": [*ARMS], "at_least": 2} | decision)
    content |= {"budgets": ["0.25", "0.5"], "arms": {name: {"policy": name} for name in ("full", "crystal", *ARMS)}}
    return plan(content, problems)


def branch(problems: int = 14, **decision: Any) -> StudyPlan:
    roles = {"primary_model": "qwen", "transfer_model": "llama", "at_least": None}
    content = study.content(**{"rule": "branch", "against": ["snapkv"]} | roles | decision)
    return plan(content | {"models": ["qwen", "llama"], "budgets": ["0.25", "0.5"]}, problems)


# ---------------------------------------------------------------- the committed rules


@pytest.mark.parametrize(("registered", "method"), sampled([superior, branch], ["sign-flip", "bootstrap", "t"], of=3))
def test_the_committed_rules_say_each_verdict_and_have_their_gates(registered, method):
    found = self_test.run_self_test(registered(method=method))
    assert list(found["verdicts"].values()) == [CONFIRMED, INCONCLUSIVE, REFUTED]
    # Of a bootstrap no loss has a p just above the level of a loss, and no win one just above its own.
    assert len(found["gates"]) == (12 if registered is superior else 16 if method == "bootstrap" else 18)
    assert list(found["gates"].values()).count(CONFIRMED) == 1  # the win that just suffices


@pytest.mark.parametrize("seed", [1, 91])
def test_a_win_near_a_level_is_one_that_no_seed_of_the_draws_moves_across_it(seed):
    """Six gained of 16 have p 2/64 = .031, which 10,000 draws of these seeds estimate as at most .025."""
    content = study.content(against=["snapkv", "h2o"], at_least=1, draws=10_000, seed=seed)
    content |= {"budgets": ["0.25"], "arms": {name: {"policy": name} for name in ("full", "crystal", "snapkv", "h2o")}}
    gates = self_test.run_self_test(plan(content, 16))["gates"]
    assert gates["a win falls short of the corrected level"] == INCONCLUSIVE


@pytest.mark.parametrize("needed", [5, 6])
def test_every_number_of_wins_that_the_family_has_can_be_asked_for(needed):
    gates = self_test.run_self_test(superior(at_least=needed))["gates"]
    assert ("a contrast is worse at the uncorrected level" in gates) is (needed < 6)
    assert gates["a contrast is lost"] == REFUTED


def test_lanes_that_count_as_wrong_are_tried_too():
    for registered in (superior, branch):
        planned = registered(missing="wrong")
        gates = self_test.run_self_test(planned)["gates"]
        assert gates["the subject's lanes have no grade"] == INCONCLUSIVE
        shipped = self_test.run_self_test(planned._replace(judging=1))["gates"]
        assert shipped["the subject's lanes have no grade"] == REFUTED
        assert gates["one lane is not run"] == INCONCLUSIVE
        assert "one lane fails" not in gates


def test_one_contrast_alone_has_no_level_between_the_corrected_and_the_uncorrected():
    content = study.content(against=["snapkv"])
    gates = self_test.run_self_test(plan(content))["gates"]
    assert gates["a win falls short of the corrected level"] == INCONCLUSIVE
    assert "a contrast is worse at the uncorrected level" not in gates


def test_max_t_has_the_gates_that_it_can_be_told_by():
    gates = self_test.run_self_test(superior(method="max-t"))["gates"]
    assert len(gates) == 11
    assert "a contrast is worse at the uncorrected level" not in gates
    assert gates["a win just reaches the corrected level"] == CONFIRMED
    assert gates["a win falls short of the corrected level"] == INCONCLUSIVE


@pytest.mark.parametrize("method", sampled(["exact-bootstrap", "restricted-likelihood", "auto"], of=3))
def test_a_method_without_draws_is_tried_without_them(method):
    planned = superior(method=method)
    for name in ("draws", "seed"):
        del planned.content["decision"][name]
    found = self_test.run_self_test(planned)
    assert list(found["verdicts"].values()) == [CONFIRMED, INCONCLUSIVE, REFUTED]
    assert found["gates"]["a win falls short of the corrected level"] == INCONCLUSIVE


def lossless(rule: str, problems: int = 60, margin: str = "0.05", method: str = "t") -> StudyPlan:
    return superior(problems, rule=rule, margin=margin, method=method, at_least=None)


@pytest.mark.parametrize(("rule", "method"), sampled(["equivalent", "non_inferior"], [*MARGIN_METHODS], of=6))
def test_a_rule_with_a_margin_says_each_verdict_and_has_its_gates(rule, method):
    wins = {"equivalent": REFUTED, "non_inferior": CONFIRMED}[rule]
    found = self_test.run_self_test(lossless(rule, 120 if method == "betting" else 60, method=method))
    assert list(found["verdicts"].values()) == [CONFIRMED, INCONCLUSIVE, REFUTED]
    assert found["gates"]["every contrast is won"] == wins
    assert found["gates"]["one contrast is lost with unmatched caches"] == INCONCLUSIVE
    assert list(found["gates"].values()).count(INCONCLUSIVE) == 7


def test_a_margin_that_equal_answers_cannot_bound_is_refused_with_the_numbers():
    # Without a difference in 58 problems: 0.95^58 = 0.051; in 59 it is 0.0485.
    with pytest.raises(self_test.Vacuous, match=r"cannot give CONFIRMED: even identical answers to 58 .* 0.051047"):
        self_test.run_self_test(lossless("non_inferior", 58))
    self_test.run_self_test(lossless("non_inferior", 59))


# ---------------------------------------------------------------- what is refused at the planned size


def test_a_size_at_which_no_win_reaches_the_level_is_refused_with_the_numbers():
    # Six of six problems won: 2 / 2^6 = 0.03125, above 0.05 / 6; of eight 0.0078.
    says = r"cannot give CONFIRMED: 2 of 6 contrasts .* 6 of 6 problems of needle, .* has p = 0.031250 at .* 0.008333"
    with pytest.raises(self_test.Vacuous, match=says):
        self_test.run_self_test(superior(6))
    self_test.run_self_test(superior(8))
    with pytest.raises(self_test.Vacuous, match=r"cannot give CONFIRMED: .*p = 0.031250 at level 0.025"):
        self_test.run_self_test(branch(6))
    self_test.run_self_test(branch(7))


def test_one_problem_cannot_be_compared():
    with pytest.raises(self_test.Vacuous, match="cannot give CONFIRMED"):
        self_test.run_self_test(superior(1))


@pytest.mark.parametrize(("needed", "says"), [(7, "cannot give CONFIRMED: 7 of 6"), (0, "must be at least 1")])
def test_a_number_of_wins_that_cannot_fail_or_hold_is_refused(needed, says):
    with pytest.raises(self_test.Vacuous, match=says):
        self_test.run_self_test(superior(at_least=needed))


def test_a_branch_with_a_third_model_is_refused():
    content = dict(branch().content) | {"models": ["qwen", "llama", "gemma"]}
    with pytest.raises(self_test.Vacuous, match="primary and transfer"):
        self_test.run_self_test(plan(content))


# ---------------------------------------------------------------- rules with one condition removed


def better(one: Contrast, level: float) -> bool:
    return one.delta > 0 and one.p <= level


def worse(one: Contrast, level: float) -> bool:
    return one.delta < 0 and one.p <= level


def superior_without(condition: str) -> Callable[..., str]:
    """The rule `superior`, said once more, but one condition is not looked at."""

    def rule(contrasts: Sequence[Contrast], decision: dict[str, Any]) -> str:
        if condition != "floor" and not any(one.informative for one in contrasts):
            return INCONCLUSIVE
        alpha, needed = float(decision["alpha"]), decision["at_least"]
        level = alpha / (1 if condition == "correction" else len(contrasts))
        level /= 10 if condition == "level" else 1

        def fair(one: Contrast) -> bool:
            return one.matched or condition == "caches of losses"

        if condition != "losses" and any(fair(one) and worse(one, level) for one in contrasts):
            return REFUTED
        won = sum(better(one, level) or (condition == "significance" and one.delta > 0) for one in contrasts)
        harm = condition != "harm" and any(worse(one, alpha) for one in contrasts)
        unfair = [one for one in contrasts if not one.matched]
        if condition == "caches of wins":
            unfair = [one for one in unfair if not better(one, level)]
        if condition == "caches of others":
            unfair = [one for one in unfair if better(one, level)]
        if condition == "caches":
            unfair = []
        enough = won >= needed - (condition == "number") or condition == "wins"
        return CONFIRMED if enough and not harm and not unfair else INCONCLUSIVE

    return rule


def branch_without(condition: str) -> Callable[..., str]:
    def rule(contrasts: Sequence[Contrast], decision: dict[str, Any]) -> str:
        if condition != "floor" and not any(one.informative for one in contrasts):
            return INCONCLUSIVE
        alpha = float(decision["alpha"])
        primary, transfer = (
            [one for one in contrasts if one.model == decision[f"{role}_model"]] for role in ("primary", "transfer")
        )

        def lost(cells: list[Contrast], matched: bool = True) -> bool:
            fair = [cell for cell in cells if cell.matched or not matched or condition == "caches of losses"]
            each = alpha / len(cells) if matched and condition != "level of losses" else alpha
            return condition != "losses" and any(worse(one, each) for one in fair)

        holds = any(
            (one.delta > 0 or condition == "sign") and (one.p < alpha or condition == "significance") for one in primary
        )
        level = alpha / {"uncorrected level": len(contrasts), "correction": 1}.get(condition, len(primary))
        holds_corrected = any(one.delta > 0 and one.p < level for one in primary) or condition in (
            "primary",
            "significance",
            "sign",
        )
        if not holds and condition != "primary":
            return REFUTED if lost(primary) else INCONCLUSIVE
        total = sum(one.delta for one in transfer)
        positive = total > 0 or (total == 0 and condition == "zero") or (total < 0 and condition == "transfer")
        if positive and (condition == "guard" or not lost(transfer, matched=False)):
            fair = condition == "caches" or all(
                one.matched for one in (primary if condition == "transfer caches" else contrasts)
            )
            harm = condition != "mixed" and any(worse(one, alpha) for one in primary)
            return CONFIRMED if fair and not harm and holds_corrected else INCONCLUSIVE
        return REFUTED if lost(transfer) else INCONCLUSIVE

    return rule


def always(word: str) -> Callable[..., str]:
    return lambda contrasts, decision: word


def never(word: str, name: str, instead: str = INCONCLUSIVE) -> Callable[..., str]:
    real = rules.RULES[name].verdict

    def rule(contrasts, decision):
        said = real(contrasts, decision)
        return instead if said == word else said

    return rule


def commit(monkeypatch, name: str, rule: Callable[..., str]) -> None:
    committed = rules.RULES[name]._replace(verdict=rule)
    monkeypatch.setattr(rules, "RULES", MappingProxyType({name: committed}))


@pytest.mark.parametrize(("registered", "without"), [(superior, superior_without), (branch, branch_without)])
def test_the_rule_said_once_more_is_accepted_while_it_is_whole(monkeypatch, registered, without):
    commit(monkeypatch, registered.__name__, without("nothing"))
    self_test.run_self_test(registered())


SUPERIOR_WITHOUT = [
    (always(CONFIRMED), "nothing differs: says CONFIRMED, not INCONCLUSIVE"),
    (always(REFUTED), "what the rule asks for is won: says REFUTED, not CONFIRMED"),
    (always(INCONCLUSIVE), "what the rule asks for is won: says INCONCLUSIVE"),
    (never(REFUTED, "superior"), "every contrast is lost: says INCONCLUSIVE, not REFUTED"),
    (never(INCONCLUSIVE, "superior", REFUTED), "nothing differs: says REFUTED"),
    (superior_without("losses"), "every contrast is lost: says INCONCLUSIVE"),
    (superior_without("wins"), "nothing differs: says CONFIRMED"),
    (superior_without("number"), "a win too few: says CONFIRMED"),
    (superior_without("significance"), "a win falls short of the corrected level: says CONFIRMED"),
    (superior_without("correction"), "a win falls short of the corrected level: says CONFIRMED"),
    (superior_without("level"), "a win just reaches the corrected level: says INCONCLUSIVE"),
    (superior_without("harm"), "a contrast is worse at the uncorrected level: says CONFIRMED"),
    (superior_without("caches"), "a contrast that is won has unmatched caches: says CONFIRMED"),
    (superior_without("floor"), "no arm does better than a guess: says CONFIRMED"),
    (superior_without("caches of wins"), "a contrast that is won has unmatched caches: says CONFIRMED"),
    (superior_without("caches of others"), "that is not won has unmatched caches: says CONFIRMED"),
    (superior_without("caches of losses"), "a contrast is lost with unmatched caches: says REFUTED"),
]


@pytest.mark.parametrize("case", sampled(SUPERIOR_WITHOUT, of=5), ids=lambda case: case[1])
def test_superior_without_one_condition_is_refused_by_name(monkeypatch, case):
    rule, says = case
    commit(monkeypatch, "superior", rule)
    with pytest.raises(self_test.Vacuous, match="superior: .*" + re.escape(says)):
        self_test.run_self_test(superior())


BRANCH_WITHOUT = [
    (always(CONFIRMED), "nothing differs: says CONFIRMED, not INCONCLUSIVE"),
    (never(REFUTED, "branch"), "every contrast is lost: says INCONCLUSIVE, not REFUTED"),
    (branch_without("losses"), "every contrast is lost: says INCONCLUSIVE"),
    (branch_without("level of losses"), "a primary loss falls short of the level of a loss: says REF"),
    (branch_without("primary"), "no primary contrast is won: says CONFIRMED"),
    (branch_without("sign"), "the primary contrasts are lost: says INCONCLUSIVE"),
    (branch_without("significance"), "a primary win falls short of its level: says CONFIRMED"),
    (branch_without("correction"), "a primary win falls short of its level: says CONFIRMED"),
    (branch_without("uncorrected level"), "a primary win just reaches its level: says INCONCLUSIVE"),
    (branch_without("zero"), "the transfer contrasts show no difference: says CONFIRMED"),
    (branch_without("transfer"), "the sign of the transfer contrasts is flipped: says CONFIRMED"),
    (branch_without("guard"), "lost while another is won by more: says CONFIRMED"),
    (branch_without("floor"), "no arm does better than a guess: says CONFIRMED"),
    (branch_without("mixed"), "a primary contrast is lost while another is won: says CONFIRMED"),
    (branch_without("caches"), "a primary contrast that is won has unmatched caches: says CONFIRMED"),
    (branch_without("transfer caches"), "a transfer contrast has unmatched caches: says CONFIRMED"),
    (branch_without("caches of losses"), "the primary contrasts are lost with unmatched caches: says REF"),
]


@pytest.mark.parametrize("case", sampled(BRANCH_WITHOUT, of=5), ids=lambda case: case[1])
def test_branch_without_one_condition_is_refused_by_name(monkeypatch, case):
    rule, says = case
    commit(monkeypatch, "branch", rule)
    with pytest.raises(self_test.Vacuous, match="branch: .*" + re.escape(says)):
        self_test.run_self_test(branch())


# ---------------------------------------------------------------- a rule whose sentences fail


@pytest.mark.parametrize("word", [CONFIRMED, INCONCLUSIVE, REFUTED])
def test_a_rule_without_an_answer_to_one_verdict_is_refused_before_anything_has_run(monkeypatch, word):
    """A study shows its verdict after its held-out problems were opened."""
    real = rules.RULES["superior"]

    def answer(judged, verdict, decision):
        return judged["misspelt"] if verdict == word else real.text.answer(judged, verdict, decision)

    lacking = real._replace(text=real.text._replace(answer=answer))
    monkeypatch.setattr(rules, "RULES", MappingProxyType({"superior": lacking}))
    says = rf"superior: its RuleText.answer of a study that is {word} fails: KeyError: 'misspelt' \(test_self_test.py:"
    with pytest.raises(self_test.Vacuous, match=says):
        self_test.run_self_test(superior())


# ---------------------------------------------------------------- a judge that does not look


@pytest.mark.parametrize("registered", [superior, branch])
def test_a_judge_that_takes_all_caches_for_matched_is_refused(monkeypatch, registered):
    real = memory_matching.match_means
    blind = lambda *slots, tolerance: real(*slots, tolerance=tolerance)._replace(is_matched=True)  # noqa: E731
    monkeypatch.setattr(memory_matching, "match_means", blind)
    with pytest.raises(self_test.Vacuous, match="unmatched caches: says"):
        self_test.run_self_test(registered())


def test_a_judge_with_another_tolerance_is_refused(monkeypatch):
    real = memory_matching.match_means
    wide = lambda *slots, tolerance: real(*slots, tolerance=2 * tolerance)  # noqa: E731
    monkeypatch.setattr(memory_matching, "match_means", wide)
    with pytest.raises(self_test.Vacuous, match="unmatched caches: says CONFIRMED"):
        self_test.run_self_test(superior())


@pytest.mark.parametrize(
    ("forgiven", "says"),
    [(NOT_RUN, "one lane is not run"), ("failed", "one lane fails"), ("ok", "one lane has no grade")],
)
def test_a_judge_that_forgives_a_lane_without_a_grade_is_refused(monkeypatch, forgiven, says):
    def missing(self: Study) -> pd.DataFrame:
        return self.lanes[self.lanes["correct"].isna() & (self.lanes["state"] != forgiven)]

    monkeypatch.setattr(Study, "missing", property(missing))
    with pytest.raises(self_test.Vacuous, match=f"{says}: says CONFIRMED"):
        self_test.run_self_test(superior())


def test_a_judge_that_drops_what_counts_as_wrong_is_refused(monkeypatch):
    def dropped(one: Study) -> compared.GradedStudy:
        return compared.GradedStudy(one, one.missing[one.missing["state"] == NOT_RUN])

    monkeypatch.setattr(compared, "apply_missing_rule", dropped)
    with pytest.raises(self_test.Vacuous, match="the subject's lanes have no grade: says INCONCLUSIVE"):
        self_test.run_self_test(superior(missing="wrong")._replace(judging=1))


def test_a_judge_that_does_not_ask_what_missing_lanes_would_have_been_is_refused(monkeypatch):
    monkeypatch.setattr(missing_bounds, "extreme_studies", lambda study: [])
    with pytest.raises(self_test.Vacuous, match="the subject's lanes have no grade: says REFUTED, not INCONCLUSIVE"):
        self_test.run_self_test(superior(missing="wrong"))


# ---------------------------------------------------------------- the simulated studies


def count(made: Study, subject: str, other: str, budget: str) -> tuple[int, int]:
    """Problems in which the one is correct with both seeds and the other with none, and the reverse."""
    solved: dict[tuple[str, str], list[float]] = {}
    for lane in made.lanes.itertuples():
        if lane.budget == budget:
            solved.setdefault((lane.arm, lane.problem), []).append(lane.correct)
    problems = {problem for _, problem in solved}
    pairs = [(solved[subject, problem], solved[other, problem]) for problem in problems]
    return pairs.count(([1, 1], [0, 0])), pairs.count(([0, 0], [1, 1]))


def test_a_made_up_study_holds_the_counts_that_were_asked_for():
    planned = superior()
    budgets = [(contrast.budget, contrast.against) for contrast in planned_contrasts(planned)]
    assert budgets == [(budget, arm) for budget in ("0.25", "0.5") for arm in ARMS]
    made = made_up(planned, Scenario({0: Outcome(3, 1), 1: Outcome(0, 4), 5: Outcome(14, 0)}, frozenset({1})))
    counts = [count(made, "crystal", arm, budget) for budget, arm in budgets]
    assert counts == [(3, 1), (0, 4), (0, 0), (0, 0), (0, 0), (14, 0)]
    assert len(made.lanes) == (4 * 2 + 1) * 2 * 14
    slots = made.lanes.groupby(["budget", "arm"])["mean_slots"].unique()
    assert all(len(held) == 1 for held in slots)
    assert slots["0.25", "crystal"][0] / slots["0.25", "h2o"][0] == pytest.approx(1.02 * 1.01)
    assert slots["0.5", "h2o"][0] == slots["0.25", "crystal"][0]
    assert made.missing.empty


@pytest.mark.parametrize(
    ("how", "state", "measured"), [("failed", "failed", False), ("not run", NOT_RUN, False), ("no grade", "ok", True)]
)
def test_lanes_end_problem_by_problem(how, state, measured):
    made = made_up(superior(), Scenario({}, ended=EndedLanes(4, False, how, 3)))
    ended = [(one.budget, one.arm, one.problem, one.seed, one.state) for one in made.missing.itertuples()]
    assert sorted(ended) == [
        ("0.5", "h2o", "p000", 0, state),
        ("0.5", "h2o", "p000", 1, state),
        ("0.5", "h2o", "p001", 0, state),
    ]
    assert made.missing["mean_slots"].notna().all() == measured


def test_what_stands_outside_the_rule_is_not_tried():
    planned = superior(beside=["full"], memory="slots")
    made = made_up(planned._replace(content=dict(planned.content) | {"sweep": {}}), Scenario({}))
    judged = judgement.judge_study(made)
    assert not {"beside", "selected"} & judged.keys()


def test_lanes_of_arms_outside_the_family_are_not_made_up():
    planned = superior(against=["h2o"], beside=["snapkv"])
    assert {arm for _, _, _, arm, _ in planned.grid} > {"full", "crystal", "h2o"}
    made, looked_at = made_up(planned, Scenario({})), {"full", "crystal", "h2o"}
    assert {*made.lanes["arm"]} == looked_at
    assert {arm for _, _, _, arm, _ in made.lock["grid"]} == looked_at
    assert made.missing.empty  # nothing registered is left out that is looked for
