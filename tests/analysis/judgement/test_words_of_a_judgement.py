"""Numbers and words of a judgement that say what decided: repeated contrasts, p, what refutes, what was excluded."""

from typing import Any

import pytest
import study

from analysis.judge import judge
from analysis.rules import verdict_line
from figures.report_page.answer import format_answer
from figures.table import verdict_table

PROBLEMS = 200
EFFECTS = {"200": {"minimal_detectable_effect": {"0.2": "0.094", "0.6": "0.153"}}}


def judged(
    folder,
    right: dict[str, range],
    problems: int = PROBLEMS,
    judging: int = 2,
    arms: dict[str, Any] | None = None,
    lock: dict[str, Any] | None = None,
    tokens=lambda arm, problem: 5,
    **decision: Any,
):
    """right: by arm, the problems that it answers; by default the first 100."""
    content = study.content(**{"method": "restricted-likelihood", "draws": None} | decision) | {"seeds": [0]}
    content["arms"] = arms or {name: {"policy": name} for name in ("full", "crystal", *content["decision"]["against"])}

    def record(lane: study.Lane) -> dict:
        arm, problem = lane[3], int(lane[5][1:])
        grade = {"grade": "correct"} if problem in right.get(arm, range(100)) else {}
        return grade | {"tokens": tokens(arm, problem)}

    fields = {"judging": judging, "chance": {"needle": "0"}} | (lock or {})
    return judge(study.write(folder / "small", content, problems, record, **fields))


def test_contrasts_that_are_the_same_are_won_once(tmp_path):
    right, against = {"crystal": range(150)}, ["a", "b", "c"]
    before = judged(tmp_path / "before", right, judging=1, against=against, at_least=3)
    assert before["verdict"] == "CONFIRMED"
    found = judged(tmp_path / "today", right, against=against, at_least=3)
    assert (found["verdict"], [row["better"] for row in found["contrasts"]]) == ("INCONCLUSIVE", [True, False, False])
    assert [row.get("repeats") for row in found["contrasts"]] == [None, *["tiny needle at 0.5 against a"] * 2]
    assert "counted above" in verdict_table(found)
    # Answers of other lengths are other answers, and two of the three are still the same.
    longer = judged(
        tmp_path / "longer", right, against=against, at_least=2, tokens=lambda arm, problem: 6 if arm == "c" else 5
    )
    assert (longer["verdict"], [row["better"] for row in longer["contrasts"]]) == ("CONFIRMED", [True, False, True])


def test_arms_of_one_policy_are_the_same_whatever_their_lanes_say(tmp_path):
    settings = {"scoring": "SnapKV()"}
    lock = {"policies": {"a": settings, "b": dict(settings), "crystal": {"scoring": "Crystal()"}}}
    right = {"crystal": range(150), "b": range(1, 101)}
    found = judged(tmp_path / "one", right, lock=lock, against=["a", "b"], at_least=2)
    assert (found["verdict"], "repeats" in found["contrasts"][1]) == ("INCONCLUSIVE", True)
    lock["policies"]["b"] = settings | {"scoring.window": "8"}
    found = judged(tmp_path / "two", right, lock=lock, against=["a", "b"], at_least=2)
    assert (found["verdict"], "repeats" in found["contrasts"][1]) == ("CONFIRMED", False)


def test_a_margin_is_kept_in_contrasts_that_are_the_same(tmp_path):
    found = judged(tmp_path, {}, rule="non_inferior", margin="0.1", at_least=None)
    assert (found["verdict"], "repeats" in found["contrasts"][1]) == ("CONFIRMED", True)


def test_no_table_prints_a_small_p_that_does_not_decide(tmp_path):
    # 17 gained and 6 lost: p = .035 alone, .07 in a family of two.
    right = {"crystal": range(6, 117)}
    found = judged(tmp_path / "today", right, tokens=lambda arm, problem: 5 + (arm == "h2o"))
    (row, _) = found["contrasts"]
    assert float(row["p"]) < 0.05 < float(row["p_decisive"]) == pytest.approx(2 * float(row["p"]), abs=1e-5)
    low, high = (100 * float(row[f"{end}_simultaneous"]) for end in ("low", "high"))
    assert low < 0 < 100 * float(row["low"])
    table = verdict_table(found)
    line = next(each for each in table.splitlines() if "snapkv" in each and each.startswith("tiny"))
    assert f"[\N{MINUS SIGN}{-low:.1f}, +{high:.1f}]" in line
    assert f"{float(row['p_decisive']):.4f}" in line
    assert f"{float(row['p']):.4f}" not in line
    assert "simultaneous" in table
    assert "95 % interval" in verdict_table(judged(tmp_path / "before", right, judging=1))


@pytest.mark.parametrize(
    ("decision", "field"),
    [
        ({"rule": "non_inferior", "margin": "0.1", "at_least": None}, "p_worse"),
        ({"rule": "equivalent", "margin": "0.1", "at_least": None}, "p_better"),
    ],
)
def test_the_p_that_decides_a_margin_is_that_of_the_margin(tmp_path, decision, field):
    row = judged(tmp_path, {"crystal": range(105)}, **decision)["contrasts"][0]
    assert row["p_decisive"] == row[field]


def test_max_t_prints_the_p_of_the_family(tmp_path):
    found = judged(tmp_path, {"crystal": range(110)}, method="max-t", draws=2000, seed=1)
    assert [row["p_decisive"] for row in found["contrasts"]] == [row["p_adjusted"] for row in found["contrasts"]]


def test_one_contrast_of_several_that_refutes_is_said_in_the_first_line(tmp_path):
    right = {"crystal": range(100), "a": range(140), "b": range(100), "c": range(101)}
    found = judged(tmp_path / "today", right, against=["a", "b", "c"])
    assert found["verdict"] == "REFUTED"
    assert verdict_table(found).splitlines()[0].startswith("REFUTED by 1 of 3 contrasts for tiny alone")
    margin = {"rule": "non_inferior", "margin": "0.05", "at_least": None}
    found = judged(tmp_path / "margin", right, against=["a", "b", "c"], **margin)
    assert verdict_line.format_line(found) == "REFUTED by 1 of 3 contrasts for tiny alone"


def test_a_study_that_could_not_tell_says_what_it_excludes_and_could_have_found(tmp_path):
    found = judged(tmp_path, {"crystal": range(3, 104)}, lock={"checks": {"problems": EFFECTS}})
    assert found["verdict"] == "INCONCLUSIVE"
    ends = [float(found["contrasts"][0][f"{end}_simultaneous"]) for end in ("low", "high")]
    low, high = f"\N{MINUS SIGN}{-100 * ends[0]:.1f}", f"+{100 * ends[1]:.1f}"
    for text in (format_answer(found), " ".join(verdict_table(found).split())):
        assert f"all of its 2 contrasts exclude a difference below {low} or above {high} points." in text
        assert (
            "Four of five such studies find 9.4 points where two arms differ on 20 % of the problems, and 15.3 points "
            "where two arms differ on 60 % of the problems."
        ) in text


@pytest.mark.parametrize("right", [{"crystal": range(20)}, {}, {"crystal": range(5)}])
def test_a_screening_prints_no_other_verdict(tmp_path, right):
    found = judged(tmp_path, right, problems=20, **{"at_least": 1})
    assert found["verdict"] == "SCREENED"
    printed = [verdict_table(found), format_answer(found), verdict_line.format_line(found), *found["does_not_prove"]]
    for text in printed:
        assert not [word for word in ("CONFIRMED", "REFUTED", "INCONCLUSIVE", "the rule") if word in text], text
    assert verdict_line.printed_rule_verdict(found) is None
    assert verdict_line.format_verdict(found).startswith("SCREENED (n = 20 decides nothing)")
