"""The chance of CONFIRMED where it is true, against chances that are worked out otherwise."""

import numpy as np
import pytest
import study
from scipy import stats

from analysis.simulation import confirm_power
from analysis.simulation.simulated_studies import StudyPlan


def plan(problems: int, budgets: int = 1, **decision) -> StudyPlan:
    content = study.content(against=["snapkv"], **decision)
    content |= {"models": ["qwen"], "budgets": [f"0.{number}" for number in range(1, budgets + 1)], "seeds": [0]}
    return StudyPlan(content, [], study.items(content, [str(number) for number in range(problems)]))


def rng() -> np.random.Generator:
    return np.random.default_rng(2)


NON_INFERIOR = {"rule": "non_inferior", "margin": "0.03", "at_least": None, "alpha": "0.05"}


def test_four_contrasts_of_a_narrow_margin_are_seldom_confirmed_where_nothing_differs():
    """287 problems, 3 points: by the normal distribution all pass in 29, 6 or 1 %, and by counting in fewer."""
    tried = plan(287, 4, method="restricted-likelihood", **NON_INFERIOR)
    assert len(confirm_power.planned_contrasts(tried)) == 4
    chances = [confirm_power.confirm_chance(tried, share, rng(), 400) for share in (0.05, 0.1, 0.2)]
    normal = [stats.norm.cdf(0.03 / np.sqrt(share / 287) - 1.645) ** 4 for share in (0.05, 0.1, 0.2)]
    assert all(chance < bound + 0.03 for chance, bound in zip(chances, normal, strict=True))
    assert chances == pytest.approx([0.18, 0.04, 0.01], abs=0.06)


@pytest.mark.parametrize(
    "decision", [NON_INFERIOR, NON_INFERIOR | {"rule": "equivalent"}, {"at_least": 2, "alpha": "0.05"}]
)
@pytest.mark.parametrize("method", ["t", "betting"])
def test_as_many_problems_as_are_said_to_suffice_do(decision, method):
    discordance = 0.2
    needed = confirm_power.problems_needed(plan(50, 2, method=method, **decision), discordance)
    chance = confirm_power.confirm_chance(plan(needed, 2, method=method, **decision), discordance, rng(), 400)
    assert 0.65 < chance < 0.95


def test_the_discordance_of_development_lanes_does_not_say_who_is_ahead():
    lanes = [
        {"model": "m", "task": "t", "budget": "0.5", "seed": 0, "problem": str(number), "arm": arm, "grade": grade}
        for number, grades in enumerate(
            [("correct", "wrong"), ("wrong", "correct"), ("wrong", "wrong"), ("correct", "error")]
        )
        for arm, grade in zip(("subject", "other"), grades, strict=True)
    ]
    decision = {"subject": "subject", "against": ["other"]}
    assert confirm_power.discordance_of_lanes(lanes, decision) == pytest.approx(2 / 3)
    swapped = {"subject": "other", "against": ["subject"]}
    assert confirm_power.discordance_of_lanes(lanes, swapped) == pytest.approx(2 / 3)
    assert confirm_power.discordance_of_lanes([], decision) is None


def test_a_sentence_for_each_discordance_says_what_is_supposed():
    said = confirm_power.describe_confirmation(
        plan(60, method="t", **NON_INFERIOR).content, {"needle": 60, "association": 60}, [0.033]
    )
    assert [line.split("disagree on ")[1].split(" %")[0] for line in said] == ["3.3", "5", "10", "20"]
    assert said[0].startswith(
        "P(CONFIRMED) if nothing differs on average and arms disagree on 3.3 % of problems (as mea"
    )


def test_the_power_of_a_study_of_agreement_is_in_standard_deviations_and_supposes_no_right_answers():
    """16 problems at the two-sided level 0.05: (1.960 + 0.842) / 4; by betting sqrt(2 ln 40) + 0.6 for 1.960."""
    content = {"outcome": {"kind": "agreement"}, "decision": {"method": "t"}}
    checks = {"tests": 1, "corrected_alpha": "0.05", "problems": {"16": {"minimal_detectable_effect": {"0.2": "none"}}}}
    (line,) = confirm_power.describe_power(content, checks, {"programs": {"confirm": [f"p/{i}" for i in range(16)]}})
    assert line == (
        "detectable with 80 % power per contrast, by 16 problems and t at level 0.05: "
        "a mean difference in agreement of 0.70 standard deviations of the problems' differences"
    )
    (line,) = confirm_power.describe_power(
        content | {"decision": {"method": "betting"}}, checks, {"programs": {"confirm": [f"p/{i}" for i in range(16)]}}
    )
    assert " of 1.04 standard deviations" in line
