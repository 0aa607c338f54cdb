"""A contrast whose arms guess, or whose margin is large beside what can be lost, decides nothing."""

from typing import Any

import pytest
import study

from analysis.judge import judge
from analysis.rules import RULES, verdict_line
from analysis.stats.above_chance import fewest_above, p_above
from figures.report_page.answer import format_answer

PROBLEMS = 200
SLOTS = {"full": 400, "0.5": 200, "0.25": 100}


def judged(
    folder,
    right: dict[str, int],
    chance: str = "0",
    accuracy: str = "0.05",
    judging: int = 3,
    models=("tiny",),
    budgets=("0.5",),
    **decision: Any,
):
    """right: by arm, by (arm, model) or (arm, budget), how many of 200 problems it answers; others answer all."""
    content = study.content(**{"method": "restricted-likelihood", "draws": None} | decision)
    content |= {"models": [*models], "budgets": [*budgets], "seeds": [0]}
    content["gate"] = {"accuracy": accuracy, "truncated": "0.1"}

    def record(lane: study.Lane) -> dict:
        model, _, budget, arm, _, problem = lane
        count = next((right[key] for key in ((arm, model), (arm, budget), arm) if key in right), PROBLEMS)
        cache = study.cache(SLOTS[budget]) if "full" in decision.get("against", ()) else study.cache(200)
        return {"cache": cache} | ({"grade": "correct"} if int(problem[1:]) < count else {})

    lock = {"judging": judging, "chance": {"needle": chance}}
    return judge(study.write(folder / "small", content, PROBLEMS, record, **lock))


def equal(rule: str, margin: str = "0.05", **decision: Any) -> dict[str, Any]:
    return {"rule": rule, "margin": margin, "at_least": None} | decision


@pytest.mark.parametrize("rule", ["equivalent", "non_inferior"])
@pytest.mark.parametrize(("subject", "against"), [(0, 0), (1, 1), (0, 1), (5, 5)])
def test_two_arms_that_answer_nothing_are_not_alike_whatever_the_full_cache_can_do(tmp_path, rule, subject, against):
    right = {"crystal": subject, "snapkv": against, "h2o": against}
    assert judged(tmp_path / "before", right, judging=1, **equal(rule))["verdict"] == "CONFIRMED"
    found = judged(tmp_path / "today", right, **equal(rule))
    assert (found["verdict"], found["label"], found["proves"]) == ("INCONCLUSIVE", "uninformative", [])
    assert [one["word"] for one in found["qualifiers"]] == ["UNINFORMATIVE"]
    assert verdict_line.format_line(found) == "INCONCLUSIVE [UNINFORMATIVE] for tiny alone"
    text = f"snapkv gets {100 * against / 200:.1f}".removesuffix(".0") + " % right, not shown to be above 5 %"
    assert text in found["qualifiers"][0]["text"]
    assert text in format_answer(found)


@pytest.mark.parametrize("rule", ["equivalent", "non_inferior"])
def test_two_arms_that_answer_everything_are_alike(tmp_path, rule):
    found = judged(tmp_path, {}, **equal(rule))
    assert found["verdict"] == "CONFIRMED"
    assert "UNINFORMATIVE" not in [one["word"] for one in found["qualifiers"]]


def lossless(folder, full: int, subject: int, **changes: Any) -> dict[str, Any]:
    right = {"full": full, "crystal": subject}
    budgets = ("0.5", "0.25")
    return judged(folder, right, budgets=budgets, **equal("smallest_lossless", against=["full"], **changes))


def test_a_margin_as_large_as_what_the_full_cache_can_do_loses_nothing(tmp_path):
    # The full cache answers 42 %, the subject nothing; half may be lost.
    shipped = lossless(tmp_path / "before", 84, 0, margin="0.5", accuracy="0.4", judging=1)
    assert shipped["verdict"] == "CONFIRMED"
    found = lossless(tmp_path / "today", 84, 0, margin="0.5", accuracy="0.4")
    assert (found["verdict"], found["label"]) == ("INCONCLUSIVE", "uninformative")
    assert [entry["smallest"] for entry in found["smallest_lossless"]] == [None]
    assert not [step for entry in found["smallest_lossless"] for step in entry["steps"] if step["passed"]]


def test_a_full_cache_that_guesses_is_no_standard(tmp_path):
    assert lossless(tmp_path / "before", 14, 14, chance="0.1", judging=1)["verdict"] == "CONFIRMED"
    found = lossless(tmp_path / "today", 14, 14, chance="0.1")
    assert (found["verdict"], found["label"]) == ("INCONCLUSIVE", "uninformative")


@pytest.mark.parametrize(("share", "verdict"), [(None, "INCONCLUSIVE"), ("0.5", "CONFIRMED")])
def test_the_margin_is_at_most_the_registered_share_of_the_full_caches_lead(tmp_path, share, verdict):
    # 60 % less a guess of 10 %: a third is 16.7 points, half is 25.
    changes = {} if share is None else {"lead_share": share}
    right = {"full": 120, "crystal": 120, "snapkv": 120, "h2o": 120}
    found = judged(tmp_path, right, chance="0.1", **equal("non_inferior", "0.2", **changes))
    assert found["verdict"] == verdict
    if share is None:
        why = found["contrasts"][0]["floor"]["uninformative"]
        assert why == "the margin of 20 % is above 33.3 % of the 50 % by which the full cache exceeds a guess"


def test_one_contrast_below_a_guess_neither_wins_nor_loses(tmp_path):
    # .5 % against 8 % below a guess of 10 %, and a win over the other comparator.
    right = {"crystal": 1, "snapkv": 16, "h2o": 0}
    assert judged(tmp_path / "before", right, chance="0.1", judging=1)["verdict"] == "REFUTED"
    found = judged(tmp_path / "today", right, chance="0.1")
    assert (found["verdict"], found["label"], found["proves"]) == ("INCONCLUSIVE", "uninformative", [])
    assert [row["worse"] for row in found["contrasts"]] == [False, False]


@pytest.mark.parametrize(("chance", "comparator"), [("0", 0), ("0.1", 20), ("0.1", 2)])
def test_a_win_over_a_comparator_that_guesses_is_one_where_the_subject_does_not(tmp_path, chance, comparator):
    right = {"crystal": 150, "snapkv": comparator, "h2o": 100}
    found = judged(tmp_path / "today", right, chance=chance, at_least=2)
    assert (found["verdict"], [row["better"] for row in found["contrasts"]]) == ("CONFIRMED", [True, True])
    assert [row["floor"]["arm"] for row in found["contrasts"]] == ["crystal", "crystal"]
    before = judged(tmp_path / "before", right, chance=chance, at_least=2, judging=2)
    assert (before["verdict"], before["label"]) == ("INCONCLUSIVE", "uninformative")
    # The same arms the other way round: what the subject lost, it lost to an arm that does not guess.
    lost = judged(tmp_path / "lost", {"crystal": comparator, "snapkv": 150, "h2o": 100}, chance=chance)
    assert (lost["verdict"], [row["worse"] for row in lost["contrasts"]]) == ("REFUTED", [True, True])


@pytest.mark.parametrize(("rule", "subject"), [("equivalent", 0), ("non_inferior", 0), ("non_inferior", 150)])
def test_a_margin_is_not_kept_beside_a_comparator_that_guesses_whatever_the_subject_does(tmp_path, rule, subject):
    found = judged(tmp_path, {"crystal": subject, "snapkv": 0, "h2o": 0}, **equal(rule))
    assert (found["verdict"], found["label"], found["proves"]) == ("INCONCLUSIVE", "uninformative", [])


def test_a_win_of_two_arms_that_guess_is_none_and_leaves_the_others_standing(tmp_path):
    # 13 % against 4 % is significant, and a guess gets 15 %; 13 % against 0 of no problems is not.
    right = {"crystal": 26, "snapkv": 8, "h2o": 120}
    found = judged(tmp_path / "today", right, chance="0.15")
    assert float(found["contrasts"][0]["p"]) < 0.001
    assert [row["better"] for row in found["contrasts"]] == [False, False]
    why = "crystal gets 13 % right, the other arm no more, and neither is shown to be above 15 %"
    assert found["contrasts"][0]["floor"]["uninformative"].startswith(why)
    assert found["verdict"] == "REFUTED"  # by the other comparator


def test_a_win_where_the_subject_guesses_is_left_out_and_leaves_the_others_standing(tmp_path):
    right = {"crystal": 150, "snapkv": 20, "h2o": 100}
    found = judged(tmp_path / "one", right, chance="0.1", at_least=1, judging=2)
    assert (found["verdict"], [row["better"] for row in found["contrasts"]]) == ("CONFIRMED", [False, True])
    assert found["qualifiers"] == []
    assert any("1 of 2 contrasts says nothing" in sentence for sentence in found["does_not_prove"])
    assert "Left out: 1 of 2 contrasts says nothing" in format_answer(found)
    found = judged(tmp_path / "two", right, chance="0.1", at_least=2, judging=2)
    assert (found["verdict"], found["label"]) == ("INCONCLUSIVE", "uninformative")


@pytest.mark.parametrize("guessing", ["qwen", "llama"])
def test_a_branch_has_no_letter_where_both_arms_guess_on_one_model(tmp_path, guessing):
    roles = {"rule": "branch", "primary_model": "qwen", "transfer_model": "llama", "at_least": None}
    models, against = ("qwen", "llama"), {"against": ["snapkv"]}
    right = {"crystal": 150, "snapkv": 100}
    common = {"chance": "0.1", "models": models} | roles | against
    assert judged(tmp_path / "both", right, **common)["verdict"] == "CONFIRMED"
    one = right | {("snapkv", guessing): 8, ("crystal", guessing): 20}
    for judging in (2, 3):
        found = judged(tmp_path / str(judging), one, judging=judging, **common)
        assert (found["verdict"], found["label"], found["branch"]) == ("INCONCLUSIVE", "uninformative", None)
        assert f"{'crystal gets 10' if judging > 2 else 'snapkv gets 4'} % right" in format_answer(found)
    guessed = judged(tmp_path / "win", right | {("snapkv", guessing): 8}, **common)
    assert (guessed["verdict"], guessed["branch"]["registered"]) == ("CONFIRMED", "A")


def test_a_letter_of_some_cells_is_none_and_no_win_is_told_beside_it(tmp_path):
    # At the smaller budget both arms guess on both models; at the larger one the subject wins on both.
    roles = {"rule": "branch", "primary_model": "qwen", "transfer_model": "llama", "at_least": None}
    common = {"chance": "0.1", "models": ("qwen", "llama"), "budgets": ("0.5", "0.25"), "against": ["snapkv"]} | roles
    right = {"crystal": 150, "snapkv": 100, ("crystal", "0.25"): 22, ("snapkv", "0.25"): 20}
    before = judged(tmp_path / "before", right, judging=2, **common)
    assert (before["verdict"], before["branch"]) == ("CONFIRMED", {"registered": "A", "symmetric": "A"})
    found = judged(tmp_path / "today", right, **common)
    assert (found["verdict"], found["branch"], found["label"]) == ("INCONCLUSIVE", None, "uninformative")
    assert RULES["branch"].text.letters(found) == ()
    assert verdict_line.format_line(found) == "INCONCLUSIVE [UNINFORMATIVE]"


def test_a_refutation_is_not_made_below_a_guess_and_is_above(tmp_path):
    # 60 % against 100 %: above; 0 % against 15 % of which a guess gets 10 %, and the margin 5.
    rule = equal("non_inferior", "0.05", against=["snapkv"])
    assert judged(tmp_path / "above", {"crystal": 120}, chance="0.1", **rule)["verdict"] == "REFUTED"
    found = judged(tmp_path / "below", {"crystal": 0, "snapkv": 30}, chance="0.1", **rule)
    assert (found["verdict"], found["label"]) == ("INCONCLUSIVE", "uninformative")


def test_p_above_chance_is_the_binomial_tail_of_right_and_wrong_answers():
    # Of three with chance 1/4: at least two are right in 3 (1/16)(3/4) + 1/64 = 10/64.
    assert p_above([[1.0], [1.0], [0.0]], 0.25) == pytest.approx(10 / 64)
    assert p_above([[0.0], [0.0]], 0.0) == 1.0
    assert p_above([[1.0], [0.0]], 0.0) == 0.0
    assert p_above([], 0.5) == 1.0
    # A cluster of two that agree is one unit: of two such, both right: 1/16.
    assert p_above([[1.0]] * 4, 0.25, ["a", "a", "b", "b"]) == pytest.approx(1 / 16)


def test_the_fewest_right_answers_above_chance_are_counted():
    # Of five coins at least four are heads in 6/32, all five in 1/32.
    assert fewest_above(5, 0.5, 0.2) == 4
    assert fewest_above(5, 0.5, 0.1) == 5
    assert fewest_above(5, 0.5, 0.01) == 6  # none


def test_answers_of_clusters_and_seeds_that_guess_are_seldom_above_chance():
    import numpy as np

    rng = np.random.default_rng(0)
    clusters = [f"c{cluster}" for cluster, size in enumerate([20, 10, 5, *[2] * 10]) for _ in range(size)]
    positions = np.array([int(name[1:]) for name in clusters])
    above = 0
    for _ in range(400):
        shared = rng.random(13) < 0.1  # a cluster's answers are all alike
        above += p_above(shared[positions][:, None].repeat(3, axis=1).astype(float), 0.1, clusters) <= 0.05
    assert above <= 30  # of 400 at a level of .05


def test_a_branch_without_a_letter_is_refuted_by_the_loss_that_every_letter_has(tmp_path):
    """Won or lost on the model where both arms guess, the loss on the other refutes, with letter B or C."""
    roles = {"rule": "branch", "primary_model": "qwen", "transfer_model": "llama", "at_least": None}
    right = {"crystal": 20, ("snapkv", "qwen"): 20, ("h2o", "qwen"): 20}
    found = judged(tmp_path, right, chance="0.1", models=("qwen", "llama"), **roles)
    assert (found["verdict"], found["branch"]) == ("REFUTED", None)
    assert not any("branch B" in said or "branch C" in said for said in found["proves"])
    answer = RULES["branch"].text.answer(found, "REFUTED", roles)
    assert (found["branch"], found["refuted_by"]) == (None, 1)  # two arms of equal answers count once
    assert answer.startswith("the branch is not known, and crystal was worse on llama, ")
    assert "\u221290.0" in answer
