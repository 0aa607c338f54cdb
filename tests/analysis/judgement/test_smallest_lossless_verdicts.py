"""Studies judged against the full cache, from answers that are stated here."""

import pytest
import study

from analysis.judge import judge
from analysis.rules import verdict_line

RIGHT = {"grade": "correct"}
SLOTS = {"full": 400, "0.5": 200, "0.25": 100, "0.125": 50}


def judged(folder, lost, problems=120, slots=SLOTS, **decision):
    """lost: by (arm, budget) of how many problems the arm loses the answer that the full cache has."""
    content = study.content(
        against=["full"], margin="0.05", method="t", at_least=None, **{"rule": "smallest_lossless"} | decision
    )
    content |= {"budgets": ["0.125", "0.5", "0.25"], "models": ["qwen", "llama"]}

    def record(lane):
        _, _, budget, arm, _, problem = lane
        wrong = int(problem[1:]) < lost.get((arm, budget), 0)
        return ({} if wrong else RIGHT) | {"cache": study.cache(slots[budget])}

    return judge(study.write(folder / "small", content, problems, record))


def test_the_smallest_lossless_budget_is_found_in_the_records(tmp_path):
    found = judged(tmp_path, {("crystal", "0.125"): 30, ("h2o", "0.25"): 30}, others=["h2o"])
    assert verdict_line.rule_verdict(found) == "CONFIRMED"
    own, other = found["smallest_lossless"]
    assert (own["arm"], own["smallest"], own["memory"], own["level"]) == ("crystal", "0.25", "0.250000", "0.025000")
    # Without a loss in 120 problems: 0.95^120 = 0.0021.
    tested = [(step["budget"], step["passed"], step["p"]) for step in own["steps"]]
    assert tested[:2] == [("0.5", True, "0.002122"), ("0.25", True, "0.002122")]
    assert (tested[2][0], tested[2][1]) == ("0.125", False)
    # h2o is equal at 0.125 again, which is never reached.
    assert (other["smallest"], [step["budget"] for step in other["steps"]]) == ("0.5", ["0.5", "0.25"])
    assert found["family"] == 12
    assert "equal measured memory" not in " ".join(found["proves"])


def test_a_loss_at_the_largest_budget_refutes(tmp_path):
    found = judged(tmp_path, {("crystal", "0.5"): 30})
    assert verdict_line.rule_verdict(found) == "REFUTED"
    assert found["smallest_lossless"][0]["smallest"] is None


@pytest.mark.parametrize("rule", ["smallest_lossless", "non_inferior", "equivalent"])
def test_a_subject_that_evicts_nothing_is_not_found_lossless(tmp_path, rule):
    found = judged(tmp_path, {}, slots=dict.fromkeys(SLOTS, 400), rule=rule)
    assert verdict_line.rule_verdict(found) == "INCONCLUSIVE"
    assert {contrast["saves"] for contrast in found["contrasts"]} == {False}
    assert found["proves"] == []
    assert "Anything about eviction in 6 of 6 contrasts" in " ".join(found["does_not_prove"])


@pytest.mark.parametrize(("held", "saves"), [(393, False), (392, True)])
def test_memory_is_saved_where_the_full_cache_holds_more_by_more_than_the_tolerance(tmp_path, held, saves):
    # 400 / 1.02 is 392.2.
    found = judged(tmp_path, {}, slots=SLOTS | {"0.5": held})
    largest = [contrast for contrast in found["contrasts"] if contrast["budget"] == "0.5"]
    assert {one["saves"] for one in largest} == {saves}


@pytest.mark.parametrize(
    ("cache", "said"),
    [
        ({"mean_bytes": 1500}, "mean bytes are 150 % of the full cache's"),
        ({"mean_bytes": 500, "state_bytes": 900}, "own state are 140 % of the full cache's"),
        ({"mean_bytes": 500}, ""),
    ],
)
def test_slots_that_are_saved_are_no_memory_where_bytes_are_not(tmp_path, cache, said):
    content = study.content(against=["full"], margin="0.05", method="t", rule="non_inferior", at_least=None)

    def record(lane):
        held = study.cache(SLOTS[lane[2]])
        return RIGHT | {"cache": held if lane[3] == "full" else held | cache}

    found = judge(study.write(tmp_path / "small", content, 120, record))
    assert verdict_line.rule_verdict(found) == "CONFIRMED"
    told = [one for one in found["does_not_prove"] if one.startswith("Less memory by every measure")]
    assert (len(told), said in "".join(told)) == (bool(said), True)
