"""A margin of agreement with the full cache: scores, judged by bets, of arms and of the full cache itself."""

import numpy as np
import pytest
import study

from analysis.judge import judge
from analysis.stats import betting

PROBLEMS = 200


def judged(folder, own, other, rule="non_inferior", against=("snapkv",), right=1.0, **decision):
    """The subject agrees at a share of positions that `own` says of a problem's number, the comparator at `other`;
    of the full cache's answers a share of `right` is correct.
    """
    decision = {"rule": rule, "against": list(against), "margin": "0.03", "method": "betting", **decision}
    content = study.content(**decision)
    for name in ("at_least", "draws", "seed"):
        del content["decision"][name]
    content |= {"seeds": [0], "outcome": {"kind": "agreement"}, "gate": {"accuracy": "0.05", "truncated": "0.5"}}

    def record(lane):
        *_, arm, _, problem = lane
        number = int(problem[1:])
        if arm == "full":
            return {"grade": "correct" if number < right * PROBLEMS else "wrong"}
        score = own(number) if arm == "crystal" else other(number)
        return {"grade": "scored", "score": f"{score:.6f}"}

    lock = {"judging": 3, "chance": {}, "checks": {"scored": ["needle"]}}
    return judge(study.write(folder / "study", content, PROBLEMS, record, **lock))


def test_an_arm_is_shown_to_agree_within_three_points_of_the_full_cache(tmp_path):
    """One problem in ten at .99: a tenth of a point on average."""
    found = judged(tmp_path, lambda number: 0.99 if number % 10 == 0 else 1.0, lambda number: 1.0, against=("full",))
    (row,) = found["contrasts"]
    assert float(row["difference"]) == pytest.approx(-0.001)
    assert (found["verdict"], row["scored"], row["saves"]) == ("CONFIRMED", "agreement", True)
    assert float(row["p_worse"]) < 0.05
    assert found["proves"] == [
        "crystal was worse by less than 0.03 points of agreement in each of 1 contrasts (betting, level 0.05)."
    ]
    assert "differences smaller than 0.03 points of agreement" in " ".join(found["does_not_prove"])
    assert "That more answers are right" in " ".join(found["does_not_prove"])


def test_what_the_full_cache_gets_right_bounds_no_margin_of_agreement(tmp_path):
    """A third of 8.5 % is less than the margin: the full cache agrees with itself all the same."""
    found = judged(tmp_path, lambda number: 1.0, lambda number: 1.0, against=("full",), right=0.085)
    (row,) = found["contrasts"]
    assert (found["verdict"], row["floor"]["uninformative"]) == ("CONFIRMED", "")


def test_an_arm_that_agrees_less_by_more_than_the_margin_is_refuted_and_one_at_the_margin_is_open(tmp_path):
    refuted = judged(tmp_path / "below", lambda number: 0.9, lambda number: 0.99)
    assert refuted["verdict"] == "REFUTED"
    (answer,) = refuted["proves"]
    assert answer.startswith("crystal was worse by more than 0.03 points of agreement in 1 of 1 contrasts")
    assert judged(tmp_path / "at", lambda number: 0.96, lambda number: 0.99)["verdict"] == "INCONCLUSIVE"


def test_equivalence_of_agreement_is_two_sided(tmp_path):
    better = {"own": lambda number: 0.99, "other": lambda number: 0.9}
    assert judged(tmp_path / "one", **better)["verdict"] == "CONFIRMED"
    assert judged(tmp_path / "two", **better, rule="equivalent")["verdict"] == "REFUTED"
    equal = {"own": lambda number: 0.9, "other": lambda number: 0.9}
    assert judged(tmp_path / "equal", **equal, rule="equivalent")["verdict"] == "CONFIRMED"


@pytest.mark.parametrize("loss", [0.05, 0.3, 1.0])
def test_studies_at_the_margin_are_confirmed_in_no_more_than_alpha(loss):
    """4,000 studies of 200 problems that lose 3 points on average: all a little, one in ten, or 3 % everything."""
    rng = np.random.default_rng(5)
    lost = rng.random((4000, PROBLEMS)) < 0.03 / loss
    p = betting.one_sided_p(-loss * lost, -0.03)[:, 0]
    assert (p <= 0.05).mean() <= 0.05
