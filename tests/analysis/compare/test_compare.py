"""Finished files compared: the same scores give what a study's own analysis gives, whoever wrote them."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import result_files as files
from sampled import sampled

import kv_prereg as kvp
from analysis.compare import forest
from analysis.compare.__main__ import main
from analysis.compare.comparison import LABEL
from analysis.judgement.judged_folder import judge
from analysis.judgement.untrusted_files import RecordError

ROOT = Path(__file__).resolve().parents[3]
SAME = ["difference", "low", "high", "low_simultaneous", "high_simultaneous", "p", "p_holm"]


def compared(capsys, *arguments: object) -> dict:
    assert main([*map(str, arguments), "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def refused(capsys, *arguments: object) -> str:
    assert main(list(map(str, arguments))) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err


@pytest.mark.parametrize("method", sampled(["sign-flip", "auto", "t", "bootstrap", "max-t", "exact-bootstrap"], of=2))
def test_every_kind_of_file_has_the_intervals_of_the_studys_own_analysis(tmp_path, capsys, method):
    """Of the whole family, so that the stream of each contrast and the correction are the study's too."""
    own = files.finished(tmp_path / "study", files.SCORES, method=method, draws=2_000, seed=7)
    expected = [{name: row[name] for name in SAME} for row in judge(own)["contrasts"]]
    assert [row["against"] for row in judge(own)["contrasts"]] == ["snapkv", "h2o"]

    logs = {}
    for arm, scores in files.SCORES.items():
        (tmp_path / f"{arm}.json").write_text(json.dumps(files.inspect_log(scores)))
        logs[arm] = files.inspect_zip(tmp_path / f"{arm}.eval", files.inspect_log(scores, words=False))
    options = ["--method", method, "--draws", 2_000, "--seed", 7]
    table = files.table(tmp_path / "scores.csv", files.SCORES)
    for paths in ([table], [tmp_path / f"{arm}.json" for arm in files.SCORES], logs.values()):
        found = compared(capsys, *paths, *options)
        assert [{name: row[name] for name in SAME} for row in found["contrasts"]] == expected
    frame = kvp.compare(pd.read_csv(table), method=method, draws=2_000, seed=7)
    assert [[f"{row[name]:.6f}" for name in SAME] for row in frame.contrasts.to_dict("records")] == [
        [row[name].removeprefix("-") if float(row[name]) == 0 else row[name] for name in SAME] for row in expected
    ]


def test_samples_of_lm_eval_have_the_intervals_of_a_study_with_one_seed(tmp_path, capsys):
    first = {arm: [seeds[:1] for seeds in scores] for arm, scores in files.SCORES.items()}
    doubled = {arm: [[seeds[0]] * 2 for seeds in scores] for arm, scores in files.SCORES.items()}
    own = judge(files.finished(tmp_path / "study", doubled, method="t"))["contrasts"]
    paths = [
        files.lm_eval(tmp_path / arm / "samples_gsm8k_2026-11-22T10-00-00.123456.jsonl", [one for (one,) in scores])
        for arm, scores in first.items()
    ]
    found = compared(capsys, *(path.parent for path in paths), "--method", "t")
    assert [[row[name] for name in SAME] for row in found["contrasts"]] == [[row[name] for name in SAME] for row in own]
    assert {(row["task"], row["subject"]) for row in found["contrasts"]} == {("gsm8k", "crystal")}


def test_a_study_is_read_by_its_own_folder_with_its_subject_first(tmp_path, capsys):
    own = files.finished(tmp_path / "study", files.SCORES, method="t")
    found = compared(capsys, own, "--method", "t")
    assert [(row["subject"], row["against"]) for row in found["contrasts"]] == [
        ("crystal", "full"),
        ("crystal", "snapkv"),
        ("crystal", "h2o"),
    ]
    assert "the study's registered verdict stands; this is a second," in " ".join(found["said"])
    (own / "verdict.json").unlink()
    assert "has no verdict" in refused(capsys, own)


def test_the_label_comes_first(tmp_path, capsys):
    table = files.table(tmp_path / "scores.csv", files.SCORES)
    assert main([str(table), "--plot", str(tmp_path / "forest.svg")]) == 0
    assert capsys.readouterr().out.splitlines()[0] == LABEL == "exploratory: nothing was registered"
    assert compared(capsys, table)["label"] == LABEL
    assert repr(kvp.compare(pd.read_csv(table))).splitlines()[0] == LABEL
    drawn = (tmp_path / "forest.svg").read_bytes()
    assert b"<svg" in drawn
    main([str(table), "--plot", str(tmp_path / "again.svg")])
    assert (tmp_path / "again.svg").read_bytes() == drawn
    capsys.readouterr()
    assert "is neither .svg nor .png; use one of" in refused(capsys, table, "--plot", tmp_path / "forest.exe")


def test_clusters_widen_and_are_counted(tmp_path, capsys):
    """Problems of a cluster that agree are one: 60 copies in 12 clusters have the interval of 12 problems."""
    few = {arm: [seeds[:1] for seeds in scores[:12]] for arm, scores in files.SCORES.items()}
    many = {arm: [score for score in scores for _ in range(5)] for arm, scores in few.items()}
    names = [f"t{i // 5}" for i in range(60)]
    twelve = compared(capsys, files.table(tmp_path / "few.csv", few), "--method", "t")["contrasts"]
    sixty = compared(capsys, files.table(tmp_path / "many.csv", many, cluster=names))["contrasts"]
    for one, other in zip(twelve, sixty, strict=True):
        assert (one["n"], other["n"], other["clusters"]) == (12, 60, 12)
        assert all(one[name] == other[name] for name in [*SAME, "detectable"])
    log = files.inspect_log(files.SCORES["h2o"])
    paths = [files.inspect_zip(tmp_path / "a.eval", log)]
    paths += [files.inspect_zip(tmp_path / "b.eval", files.inspect_log(files.SCORES["snapkv"]))]
    assert compared(capsys, *paths, "--cluster", "template")["contrasts"][0]["clusters"] == 12
    assert "--cluster takes one of: template" in refused(capsys, *paths, "--cluster", "subject")


def test_clusters_of_unequal_size_have_the_robust_error(tmp_path, capsys):
    """One cluster is three times as large and goes its own way: its value lies outside [-1, 1] and is not
    cut. Sizes 12 and twelve of 4: 3600 / 336 = 10.7.
    """
    own = [1.0] * 12 + [0.0] * 48
    other = [0.0] * 36 + [1.0] * 24
    names = ["big"] * 12 + [f"c{i // 4}" for i in range(48)]
    row = kvp.compare(
        pd.DataFrame(
            [
                {"id": i, "arm": arm, "score": scores[i], "cluster": names[i]}
                for arm, scores in (("own", own), ("other", other))
                for i in range(60)
            ]
        )
    ).contrast_list[0]
    mean = (12 - 24) / 60
    sums = [12 * (1 - mean), *[4 * (0 - mean)] * 6, *[4 * (-1 - mean)] * 6]
    robust = (sum(one**2 for one in sums) * 13 / 12) ** 0.5 / 60
    assert (row.clusters, row.effective_clusters, row.difference) == (13, 10, pytest.approx(mean))
    # Student's quantiles of twelve degrees of freedom, from a table.
    assert row.low == pytest.approx(mean - 2.178813 * robust, abs=1e-6)
    assert row.detectable == pytest.approx((2.178813 + 0.872609) * robust, abs=1e-5)


def test_scores_between_zero_and_one_are_compared_by_t_and_not_by_counting(tmp_path, capsys):
    part = {"a": [[i / 40] for i in range(40)], "b": [[(i / 40) ** 2] for i in range(40)]}
    table = files.table(tmp_path / "scores.csv", part)
    assert compared(capsys, table)["method"] == "t"
    for method in ("auto", "restricted-likelihood", "exact-bootstrap"):
        assert "with scores or clusters use: bootstrap, t, cr2, betting, sign-flip, max-t" in refused(
            capsys, table, "--method", method
        )
    assert "name one of bootstrap" in refused(capsys, table, "--method", "wilcoxon")


def test_words_of_inspect_ai_are_the_numbers_that_it_makes_of_them(tmp_path, capsys):
    """Its `value_to_float`: correct 1, partial .5, incorrect and no answer 0."""
    log = files.inspect_log([[1]] * 4)
    for sample, word in zip(log["samples"], "CPIN", strict=True):
        sample["scores"]["match"]["value"] = word
    (tmp_path / "a.json").write_text(json.dumps(log))
    (tmp_path / "b.json").write_text(json.dumps(files.inspect_log([[1], [0.5], [0], [0]], words=False)))
    found = compared(capsys, tmp_path / "a.json", tmp_path / "b.json")
    assert [arm["score"] for arm in found["arms"]] == ["0.375000"] * 2
    assert (found["contrasts"][0]["gains"], found["contrasts"][0]["losses"]) == (0, 0)


def test_a_frame_has_missing_scores_refused_by_row():
    frame = pd.DataFrame({"id": [1, 2] * 2, "arm": list("aabb"), "score": [1, 0, None, 1]})
    with pytest.raises(RecordError, match="score: 1 problems of b have no score: '1'"):
        kvp.compare(frame)
    with pytest.raises(RecordError, match="arm: is not a column"):
        kvp.compare(frame.drop(columns="arm"))
    for column in ("id", "arm"):
        with pytest.raises(RecordError, match=f"frame: row 1: {column}: is missing"):
            kvp.compare(frame.assign(score=1, **{column: [1, None, 2, 3]}))
    with pytest.raises(RecordError, match="frame: two columns have the same name; rename one"):
        kvp.compare(pd.concat([frame, frame[["score"]]], axis=1))
    with pytest.raises(RecordError, match=r"is a list, not a pandas\.DataFrame"):
        kvp.compare(frame.to_dict("records"))
    with pytest.raises(RecordError, match=r"frame: row 0: score: 71 is outside \[0, 1\]"):
        kvp.compare(frame.assign(score=71))


def test_a_judged_study_is_a_data_frame(tmp_path):
    own = files.finished(tmp_path / "study", files.SCORES)
    lanes = kvp.Study(own).records
    assert len(lanes) == 60 * 2 * 4
    assert lanes.query("arm == 'h2o'")["correct"].mean() == pytest.approx(sum(map(sum, files.SCORES["h2o"])) / 120)
    (own / "verdict.json").unlink()
    with pytest.raises(RecordError, match="has no verdict"):
        _ = kvp.Study(str(own)).records


def test_naming_the_package_loads_nothing_of_statistics():
    code = "import analysis, sys; print({'numpy', 'pandas', 'scipy', 'analysis.compare'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "set()\n", done.stderr


def of_arms(**right: int) -> pd.DataFrame:
    """Arms that solve the first so many of 60 problems."""
    rows = [(arm, item, int(item < count)) for arm, count in right.items() for item in range(60)]
    return pd.DataFrame(rows, columns=["arm", "id", "score"])


def test_three_arms_are_ranked_and_two_are_not(tmp_path):
    ranked = kvp.compare(of_arms(low=10, best=58, better=57), draws=999)
    assert [tuple(row) for row in ranked.rank_list] == [
        ("", "best", pytest.approx(58 / 60), 1, 2),
        ("", "better", pytest.approx(57 / 60), 1, 2),
        ("", "low", pytest.approx(10 / 60), 3, 3),
    ]
    assert re.search(r"best +96\.7 +1 to 2\n", repr(ranked))
    assert (
        "with few clusters, or with scores that are mostly identical, the ranks and everything by max-t err more often"
        in " ".join(repr(ranked).split())
    )
    forest.write_forest(tmp_path / "forest.svg", ranked)
    assert 'id="rank-2"' in (tmp_path / "forest-ranks.svg").read_text()
    assert kvp.compare(of_arms(low=10, best=58)).rank_list == []


def test_an_arm_on_other_problems_has_no_rank_and_is_named():
    """`few` and `fewer` lack five problems: `all` was compared with the subject alone, on all of them."""
    frame = of_arms(subject=40, all=60, few=30, fewer=10)
    frame = frame[~(frame["arm"].isin(["few", "fewer"]) & (frame["id"] >= 55))]
    ranked = kvp.compare(frame, common=True, draws=999)
    assert [row.arm for row in ranked.rank_list] == ["subject", "few", "fewer"]
    assert "all: not ranked among the others, because the problems differ" in ranked.notes
    assert not any(
        "not ranked among the others, because the problems differ" in note
        for note in kvp.compare(of_arms(a=40, b=60, c=30), draws=999).notes
    )


def test_a_task_has_one_ranking():
    """Two pairs of arms on two sets of problems: the subject would stand in both."""
    frame = of_arms(subject=40, a=60, b=30, c=10, d=20, e=25)
    lacking = {"a": 55, "b": 55, "c": 50, "d": 50, "e": 50}
    frame = frame[[item < lacking.get(arm, 60) for arm, item in zip(frame["arm"], frame["id"], strict=True)]]
    ranked = kvp.compare(frame, common=True, draws=999)
    assert [row.arm for row in ranked.rank_list] == ["subject", "e", "d", "c"]
    assert "a, b: not ranked among the others, because the problems differ" in ranked.notes


def test_a_margin_names_the_contrasts_that_lie_within_it_and_is_exploratory():
    frame = of_arms(subject=60, same=60, far=40)
    text = " ".join(repr(kvp.compare(frame, margin=0.1)).split())
    assert "Exploratory: 1 of 2 contrasts are within a margin of 10 percentage points: subject - same." in text
    assert "within a margin" not in repr(kvp.compare(frame))
    assert "Exploratory: 0 of 2 contrasts are within a margin of 1 percentage points." in " ".join(
        repr(kvp.compare(frame, margin=0.01)).split()
    )
    data = kvp.compare(frame, margin=0.1).data()
    assert (
        data["margin"],
        sum("within a margin of 10 percentage points: subject - same." in note for note in data["said"]),
    ) == (
        0.1,
        1,
    )
    with pytest.raises(ValueError, match="margin: 2 is not a difference of scores"):
        kvp.compare(frame, margin=2)
