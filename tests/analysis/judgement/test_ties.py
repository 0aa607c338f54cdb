"""A tie of lanes is a tie, however the means of problems are rounded."""

import study

from analysis.judge import judge

RIGHT = {"grade": "correct"}
# (budget, problem) -> the seeds of the transfer model with which one arm alone is right
GAINED = {("0.25", "p000"): {0, 1}, ("0.25", "p001"): {2}}
LOST = {("0.5", "p000"): {0}, ("0.5", "p001"): {0}, ("0.5", "p002"): {0}}


def record(lane: study.Lane) -> dict:
    """Every primary problem is won; of the transfer model three lanes are won and three lost."""
    model, _, budget, arm, seed, problem = lane
    if model == "qwen":
        return RIGHT if arm == "crystal" else {}
    alone = {"crystal": GAINED, "snapkv": LOST}.get(arm, {})
    return RIGHT if seed in alone.get((budget, problem), ()) else {}


def test_three_lanes_won_and_three_lost_are_a_transfer_mean_of_zero(tmp_path):
    decision = {"rule": "branch", "against": ["snapkv"], "at_least": None, "method": "t"}
    content = study.content(**decision, primary_model="qwen", transfer_model="llama")
    content |= {"models": ["qwen", "llama"], "budgets": ["0.25", "0.5"], "seeds": [0, 1, 2]}
    judged = judge(study.write(tmp_path / "small", content, 20, record))
    transfer = [
        (contrast["gains"], contrast["losses"]) for contrast in judged["contrasts"] if contrast["model"] == "llama"
    ]
    assert transfer == [(3, 0), (0, 3)]
    # Rounded to twelve decimals, the means of these problems do not cancel.
    assert round(2 / 3, 12) + round(1 / 3, 12) > sum(3 * [round(1 / 3, 12)])
    assert judged["branch"] == {"registered": "B", "symmetric": "B"}
