"""Registered claims about the full cache, which holds more memory on purpose."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import study

from analysis import ablations, judge
from analysis.ablations import judge_claims

CELLS = [("needle", "0.25"), ("needle", "0.5"), ("chain", "0.25"), ("chain", "0.5")]


def against_full(*arms, says="worse", **more):
    return {arm: {"arm": arm, "parent": "full", "says": says} | more for arm in arms}


def written(claims: dict[str, Any], **decision: Any) -> dict[str, Any]:
    """Two tasks, two budgets, one seed."""
    content = study.content(method="sign-flip", **decision) | {"budgets": ["0.25", "0.5"], "seeds": [0]}
    content["tasks"] += [{"name": "chain", "query": "inside", "max_new_tokens": 12}]
    return content | {"claims": claims}


def finished(folder: Path, content, change, problems=12, **lock) -> Path:
    study.write(folder / "s", content, problems, change, **lock)
    verdict = {"judged": judge.judge(folder / "s")}
    (folder / "s" / "verdict.json").write_bytes(study.canonical(verdict) + b"\n")
    return folder / "s"


def right(solved, lane):
    """solved: by task, budget and arm the number of problems that are answered, from the first on."""
    return {"grade": "correct"} if int(lane[5][1:]) < solved.get(lane[1:4], 0) else {}


def lanes(full, **arms):
    """full: problems that the full cache solves on either task. arms: by arm those of each of CELLS."""
    solved = {(task, "full", "full"): full for task in ("needle", "chain")}
    return solved | {
        (*cell, arm): count for arm, counts in arms.items() for cell, count in zip(CELLS, counts, strict=True)
    }


def test_every_cell_of_an_arm_is_held_against_the_one_cell_of_the_full_cache(tmp_path):
    # All 2^12 flips are counted: g losses without a gain have p = 2 / 2^g. Two claims, so that each cell
    # supports at .025; h2o loses 7, 8, 9 and 7 of the 9, snapkv once 6 (p = .03125).
    solved = lanes(9, h2o=(2, 1, 0, 2), snapkv=(0, 0, 0, 3))
    content = written(against_full("h2o", "snapkv"))
    found = judge_claims(finished(tmp_path, content, partial(right, solved)))
    one, two = found["claims"]
    assert (found["claim_alpha"], found["family"]) == (0.025, 8)
    seen = {(cell.task, cell.budget): (cell.effect.p, cell.outcome) for cell in one["cells"]}
    expected = [2 / 2**7, 2 / 2**8, 2 / 2**9, 2 / 2**7]
    assert seen == {cell: (p, "supported") for cell, p in zip(CELLS, expected, strict=True)}
    assert (one["outcome"], two["outcome"]) == ("supported", "undecided")
    assert two["p"] == 2 / 2**6
    # Half of the memory. What half may have cost reaches 1, and would widen the interval to there.
    effect = one["cells"][0].effect
    assert (effect.cache_ratio, effect.matched) == (0.5, True)
    assert effect.difference == pytest.approx(-7 / 12)
    assert effect.high < 0.5


def test_an_arm_that_gains_everywhere_is_better_and_contradicts_that_it_is_worse(tmp_path):
    # Ten gains have p = 2 / 2^10, below .05 over 8 contrasts.
    solved = lanes(0, h2o=(10, 10, 10, 10), snapkv=(10, 0, 0, 0))
    claims = against_full("snapkv") | against_full("h2o", says="better")
    by_arm = {
        claim["arm"]: claim
        for claim in judge_claims(finished(tmp_path, written(claims), partial(right, solved)))["claims"]
    }
    assert by_arm["h2o"]["outcome"] == "supported"
    assert by_arm["snapkv"]["outcome"] == "contradicted"


@pytest.mark.parametrize(("problems", "expected"), [(60, "supported"), (20, "undecided")])
def test_the_same_as_the_full_cache_is_a_margin(tmp_path, problems, expected):
    # No answer differs: 1 - 0.05^(1/60) = 0.049 is below the margin, 1 - 0.05^(1/20) = 0.139 is not.
    claims = against_full("h2o", says="same", margin="0.1")
    (one,) = judge_claims(finished(tmp_path, written(claims), partial(right, {}), problems))["claims"]
    assert one["outcome"] == expected


@pytest.mark.parametrize(
    ("slots", "outcome"), [(501.0, "supported"), (503.0, "undecided"), (512.0, "undecided"), (600.0, "undecided")]
)
def test_an_arm_that_does_not_hold_less_is_undecided(tmp_path, slots, outcome):
    # The full cache holds 512, which is 2.2 % more than 501 and 1.8 % more than 503; 2 % is the tolerance.
    def change(lane):
        held = {"cache": study.cache(slots)} if lane[1:4] == ("chain", "0.5", "h2o") else {}
        return held | right(lanes(12), lane)

    (one,) = judge_claims(finished(tmp_path, written(against_full("h2o")), change))["claims"]
    assert [cell.outcome for cell in one["cells"]] == [*["supported"] * 3, outcome]
    assert one["outcome"] == outcome
    if outcome == "undecided":
        assert (one["why"], one["needs"]) == ("the arm does not use less memory than the full cache", None)
        assert one["p"] == 1


def test_a_lane_of_the_full_cache_without_a_grade_opens_every_budget_of_its_task(tmp_path):
    def change(lane):
        failed = lane[1:4] == ("chain", "full", "full") and lane[5] == "p011"
        return study.FAILED if failed else right(lanes(12), lane)

    (one,) = judge_claims(finished(tmp_path, written(against_full("h2o")), change))["claims"]
    assert {(cell.task, cell.why) for cell in one["cells"]} == {("needle", ""), ("chain", "lanes without a grade")}
    assert (one["outcome"], one["p"]) == ("undecided", 1)


def test_a_claim_about_the_full_cache_says_so_and_has_no_parts(tmp_path, capsysbinary):
    top = {"selection": "policies.selection.TopK()"}
    policies = {"full": {}, "crystal": top, "snapkv": top, "h2o": {"selection": "policies.selection.All()"}}
    claims = against_full("h2o") | {"own": {"arm": "h2o", "says": "better"}}
    folder = finished(tmp_path, written(claims), partial(right, lanes(12)), policies=policies)
    assert ablations.main([str(folder)]) == 0
    text = capsysbinary.readouterr().out.decode()
    assert "These claims about the arms were registered separately" in text
    assert "Against the full cache, memory differs on purpose" in text
    assert "h2o is worse than the full cache: supported" in text
    assert text.count("h2o against crystal: selection: TopK() -> All()") == 1
    assert "h2o against the full cache" not in text
    assert "ablation" not in text.split("registered separately")[1]
    assert ablations.main([str(folder), "--json"]) == 0
    own, full = sorted(json.loads(capsysbinary.readouterr().out)["claims"], key=lambda one: one["parent"])
    assert (full["against_full"], full["structure"]) == (True, None)
    assert "against_full" not in own
    assert own["structure"]
