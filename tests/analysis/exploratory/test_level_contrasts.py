"""Contrasts by level, counted by a plain loop over made-up lanes."""

import json
import math

import pytest
import study
from scipy import stats

from analysis import by_level as command
from analysis import judge
from analysis.exploratory.level_contrasts import contrasts_by_level, order_levels
from analysis.judgement.study_files import read_study
from figures.report_page import report_tables

LEVELS = {f"p{i:03d}": str((4096, 512, 16384)[i % 3]) for i in range(30)}
NONE = ["difference", "low", "high"]


def content(**decision):
    return study.content(**decision) | {"seeds": [0]}


def right(lane):
    """crystal: all of length 512; snapkv: every second problem; h2o: none."""
    problem = int(lane[5][1:])
    solved = {"crystal": LEVELS[lane[5]] == "512", "snapkv": problem % 2 == 0}.get(lane[3], False)
    return {"grade": "correct"} if solved else {}


def made(folder, change=right, problems=30, **more):
    ids = [f"p{i:03d}" for i in range(problems)]
    items = {"needle": {"dev": ["d"], "confirm": ids, "levels": {one: LEVELS[one] for one in ids}} | more}
    return study.write(folder, content(), problems, change, items=items)


def test_each_level_has_the_problems_answers_and_signs_of_its_own(tmp_path):
    rows = contrasts_by_level(read_study(made(tmp_path / "s")))
    assert [(row["against"], row["level"]) for row in rows] == [
        (arm, level) for arm in ("snapkv", "h2o") for level in ("512", "4096", "16384")
    ]
    for row in rows:
        here = [int(one[1:]) for one, level in LEVELS.items() if level == row["level"]]
        own = [row["level"] == "512" for _ in here]
        other = [row["against"] == "snapkv" and problem % 2 == 0 for problem in here]
        pairs = list(zip(own, other, strict=True))
        assert row["n"] == len(here) == 10
        assert (row["gains"], row["losses"]) == (
            sum(one and not two for one, two in pairs),
            sum(two and not one for one, two in pairs),
        )
        assert row["own"] == pytest.approx(sum(own) / 10)
        assert row["difference"] == pytest.approx((sum(own) - sum(other)) / 10)
        assert row["low"] <= row["difference"] <= row["high"]


def test_levels_without_any_difference_have_the_exact_limits(tmp_path):
    """Of ten problems that agree a share of 1 - .025^(1/10) of others, of either sign, is possible."""
    row = next(
        row
        for row in contrasts_by_level(read_study(made(tmp_path / "s")))
        if row["against"] == "h2o" and row["level"] == "4096"
    )
    bound = 1 - 0.025 ** (1 / 10)
    assert (row["difference"], row["low"], row["high"]) == pytest.approx((0, -bound, bound))


def test_scores_have_students_interval_of_their_level(tmp_path):
    def change(lane):
        score = {"crystal": (int(lane[5][1:]) * 7 % 11) / 10, "snapkv": 0.25}.get(lane[3], 0.5)
        return {"grade": "scored", "score": f"{score:.6f}"}

    rows = contrasts_by_level(read_study(made(tmp_path / "s", change)))
    values = [(int(one[1:]) * 7 % 11) / 10 - 0.25 for one, level in LEVELS.items() if level == "4096"]
    low, high = stats.t.interval(0.95, 9, sum(values) / 10, stats.sem(values))
    row = next(row for row in rows if (row["against"], row["level"]) == ("snapkv", "4096"))
    assert (row["low"], row["high"]) == pytest.approx((low, high), abs=1e-9)


def test_problems_of_one_cluster_are_no_level_of_their_own(tmp_path):
    clusters = {one: LEVELS[one] for one in LEVELS}  # every level is one document
    rows = contrasts_by_level(read_study(made(tmp_path / "s", clusters=clusters)))
    assert all(row[name] is None for row in rows for name in NONE)
    assert rows[0]["n"] == 10


def test_a_problem_that_one_arm_lost_is_in_no_level_and_a_study_without_levels_has_no_row(tmp_path):
    def lost(lane):
        return study.FAILED if lane[3] == "snapkv" and lane[5] == "p001" else right(lane)

    counts = {
        (row["against"], row["level"]): row["n"] for row in contrasts_by_level(read_study(made(tmp_path / "s", lost)))
    }
    assert counts["snapkv", "512"] == 9
    assert counts["h2o", "512"] == 10
    plain = study.write(tmp_path / "plain", content(), 6, right)
    assert contrasts_by_level(read_study(plain)) == []


def test_the_pooled_difference_is_that_of_the_levels_by_their_problems(tmp_path):
    folder = made(tmp_path / "s")
    judged = {row["against"]: float(row["difference"]) for row in judge.judge(folder)["contrasts"]}
    rows = contrasts_by_level(read_study(folder))
    for against, difference in judged.items():
        own = [row for row in rows if row["against"] == against]
        pooled = math.fsum(row["difference"] * row["n"] for row in own) / 30
        assert pooled == pytest.approx(difference, abs=1e-6)


def test_levels_that_are_numbers_ascend_and_words_stand_as_they_come():
    assert order_levels(["16384", "4096", "0.5", "4096"]) == ["0.5", "4096", "16384"]
    assert order_levels(["hard", "easy", "hard"]) == ["hard", "easy"]


def test_the_command_and_the_report_say_the_same(tmp_path, capsysbinary):
    folder = made(tmp_path / "s")
    (folder / "verdict.json").write_bytes(study.canonical({"judged": judge.judge(folder)}) + b"\n")
    assert command.main([str(folder)]) == 0
    said = capsysbinary.readouterr().out.decode().splitlines()
    assert command.main([str(folder), "--json"]) == 0
    rows = json.loads(capsysbinary.readouterr().out)["contrasts"]
    assert rows[0]["difference"] == "0.500000"
    line = next(line for line in said if line.split()[3:6] == ["crystal", "snapkv", "512"])
    assert line.split()[-3] == "+50.0"
    assert report_tables.levels_table(contrasts_by_level(read_study(folder))).count("<tr>") == 1 + 6
    assert report_tables.levels_table([]) == ""


def test_a_study_without_levels_or_verdict_is_refused_in_one_line(tmp_path, capsys):
    folder = study.write(tmp_path / "s", content(), 6, right)
    for said in ("has no verdict", "no task has levels"):
        assert command.main([str(folder)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert said in line
        (folder / "verdict.json").write_bytes(study.canonical({"judged": judge.judge(folder)}) + b"\n")
