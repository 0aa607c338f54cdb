"""What a registration text says of each rule and method, with the numbers of the lock."""

from typing import Any

import pytest

from analysis.rules import RULES
from analysis.stats.methods import METHODS
from protocol.instruments.exports import lock_sentences as say


def lock(**decision: Any) -> dict[str, Any]:
    made = {
        "rule": "superior",
        "subject": "crystal",
        "against": ["snapkv", "h2o"],
        "alpha": "0.05",
        "method": "t",
        "draws": 10_000,
        "seed": 7,
        "cache_tolerance": "0.02",
        "missing": "inconclusive",
    } | decision
    return {
        "protocol": {"content": {"question": "Is it so?", "decision": made, "models": ["tiny"]}},
        "items": {},
        "sources": {},
        "checks": {"tests": 2, "corrected_alpha": "0.025000"},
        "rule": {"name": made["rule"], "source": "analysis/rules/superior.py", "sha256": "0" * 64},
    }


@pytest.mark.parametrize(
    ("rule", "hypothesis", "confirmed", "refuted"),
    [
        (
            "equivalent",
            "of crystal on held-out problems differs by less than 3 percentage points from that of snapkv",
            "a difference of -0.03 and that of 0.03 have p at most 0.05",
            "limits, with coverage 1 - 2 x 0.025000, that lie below -0.03 or above 0.03.",
        ),
        (
            "non_inferior",
            "is worse by less than 3 percentage points",
            "a difference of -0.03 has p at most 0.05",
            "that lie below -0.03.",
        ),
    ],
)
def test_a_rule_with_a_margin_is_said_with_it(rule, hypothesis, confirmed, refuted):
    made = lock(rule=rule, margin="0.03")
    assert hypothesis in " ".join(say.hypothesis(made))
    said = " ".join(say.inference(made))
    assert confirmed in said
    assert refuted in said


@pytest.mark.parametrize("rule", ["superior", "branch"])
def test_what_is_scored_is_not_said_to_be_answered_correctly(rule):
    made = lock(rule=rule, at_least=2, primary_model="qwen", transfer_model="llama")
    assert "crystal answers more of the held-out problems correctly than" in " ".join(say.hypothesis(made))
    made["checks"]["scored"] = ["needle"]
    said = " ".join(say.hypothesis(made))
    assert "crystal has a higher mean score on the held-out problems than snapkv, h2o" in said
    assert "correctly" not in said


def test_a_branch_is_refuted_at_the_level_of_its_deciding_model_and_by_older_rules_at_alpha():
    made = lock(rule="branch", primary_model="qwen", transfer_model="llama")
    assert "one on qwen, that goes against it with p below 0.05." in " ".join(say.inference(made))
    made["checks"]["decision_errors"] = {}
    assert "p below alpha divided by the number of contrasts on that model" in " ".join(say.inference(made))


def test_max_t_is_said_to_adjust_for_the_family():
    made = lock(method="max-t", at_least=1)
    assert "favour crystal with an adjusted p at most 0.05, none goes" in " ".join(say.inference(made))
    (sentence,) = say.analysis(made)
    assert "(10000 draws, seed 7)" in sentence
    assert sentence.endswith("the simultaneous intervals are those of max-t.")


@pytest.mark.parametrize("method", METHODS)
def test_every_method_that_can_be_registered_is_described(method):
    (sentence,) = say.analysis(lock(method=method, at_least=1))
    assert f"The method is {method};" not in sentence


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_that_can_be_registered_says_when_it_confirms(rule):
    more = {"at_least": 1, "margin": "0.03", "primary_model": "a", "transfer_model": "b"}
    assert any(one.startswith("CONFIRMED:") for one in say.inference(lock(rule=rule, **more)))
