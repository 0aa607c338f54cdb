"""Result files that cannot be compared: one line with file, line, field and what to do."""

import json
import os
import zipfile

import pytest
import result_files as files

from analysis.compare import untrusted_files
from analysis.compare.__main__ import main
from protocol.formats import files as files_of_formats

ONE = [1.0, 0.0, 1.0, 1.0]


def refused(capsys, *arguments: object) -> str:
    assert main(list(map(str, arguments))) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err


def compared(capsys, *arguments: object) -> dict:
    assert main([*map(str, arguments), "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def lines(path, *changes):
    """The samples at `path` with some lines replaced: (line, {field: value}), None drops the field."""
    every = [json.loads(line) for line in path.read_text().splitlines()]
    for number, change in changes:
        every[number - 1] = {name: one for name, one in (every[number - 1] | change).items() if one is not None}
    path.write_text("\n".join(map(json.dumps, every)))
    return path


@pytest.fixture
def both(tmp_path):
    return [files.lm_eval(tmp_path / arm / "samples_toy.jsonl", ONE) for arm in ("a", "b")]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"doc_hash": "0" * 64}, "line 3: id: '2' is a different question at"),
        ({"target_hash": "0" * 64}, "line 3: id: '2' is a different question at"),
        ({"doc": {"question": "other"}}, "line 3: id: '2' is a different question at"),
        ({"prompt_hash": "0" * 64}, "line 3: prompt: '2' has a different prompt at"),
        ({"doc_id": 1}, "line 3: id: '1' of b already occurred at"),
        ({"doc_id": None}, "line 3: doc_id: is missing; name a samples_*.jsonl"),
        ({"doc_id": [2]}, "line 3: doc_id: [2] is not an id"),
        ({"doc_id": 7}, "not in b: '2'; id: 1 problems of 'toy' of b are not in a: '7'"),
        ({"exact_match": float("nan")}, "line 3: exact_match: nan is not finite"),
        ({"exact_match": 10**400}, "line 3: exact_match: inf is not finite"),
        ({"exact_match": 71.2}, "line 3: exact_match: 71.2 is outside [0, 1]; divide percentages by 100"),
        ({"exact_match": -1}, "line 3: exact_match: -1 is outside [0, 1]"),
        ({"exact_match": [1, 2]}, "line 3: exact_match: [1, 2] is not a number; choose another metric"),
        ({"exact_match": None}, "line 3: exact_match: is missing"),
        ({"filter": "strict-match"}, "filter: there are 2; choose one with --filter: none, strict-match"),
        ({"metrics": ["exact_match", "f1"], "f1": 0.5}, "choose one with --metric: exact_match, f1"),
    ],
)
def test_a_line_that_does_not_fit_is_named(both, capsys, change, says):
    lines(both[1], (3, change))
    err = refused(capsys, *both)
    assert says in err
    assert err.startswith("ResultError: ")
    assert str(both[1]) in err or "problems of" in err


@pytest.mark.parametrize(
    ("own", "other", "says"),
    [
        ({"metric": "f1"}, {}, "metric of lm-eval samples: is 'exact_match', but 'f1' at"),
        ({"filter": "strict-match"}, {"filter": "flexible-extract"}, "filter of lm-eval samples: is 'flexible-"),
    ],
)
def test_two_metrics_or_filters_are_no_pair(tmp_path, capsys, own, other, says):
    """Each file has one alone, so that nothing had to be chosen."""
    one = files.lm_eval(tmp_path / "a" / "samples_toy.jsonl", ONE, **own)
    two = files.lm_eval(tmp_path / "b" / "samples_toy.jsonl", ONE[::-1], **other)
    assert says in refused(capsys, one, two)


def test_two_scorers_of_inspect_ai_are_no_pair(tmp_path, capsys):
    for name, scorer in (("a", "match"), ("b", "includes")):
        log = files.inspect_log([[one] for one in ONE])
        for sample in log["samples"]:
            sample["scores"] = {scorer: sample["scores"]["match"]}
        (tmp_path / f"{name}.json").write_text(json.dumps(log))
    err = refused(capsys, tmp_path / "a.json", tmp_path / "b.json")
    assert "metric of an inspect_ai log: is 'includes', but 'match' at" in err


@pytest.mark.parametrize(("metric", "less"), [("wer", True), ("f1", False)])
def test_of_a_metric_that_counts_errors_it_is_said_that_less_is_better(tmp_path, capsys, metric, less):
    paths = [
        files.lm_eval(tmp_path / arm / "samples_toy.jsonl", scores, metric)
        for arm, scores in (("a", ONE), ("b", ONE[::-1]))
    ]
    said = compared(capsys, *paths)["said"]
    assert any(one.startswith(f"{metric}: lower is better") for one in said) == less


def test_what_no_correction_knows_is_said(tmp_path, capsys, both):
    said = compared(capsys, *both)["said"]
    assert "toy: a and b have identical scores on every problem; check that they are not two files of one run" in said
    assert "corrected for this one contrast only: not for other comparisons" in said[-1]
    lines(both[1], (3, {"exact_match": 0}))
    assert not any("have identical scores on every problem" in one for one in compared(capsys, *both)["said"])


def test_what_is_left_out_is_counted_and_only_when_asked_for(both, capsys):
    lines(both[1], (3, {"doc_id": 7}))
    refused(capsys, *both)
    found = compared(capsys, *both, "--common")
    assert [(row["n"], row["left_out"]) for row in found["contrasts"]] == [(3, 2)]
    assert "id: 1 problems of 'toy' of a are not in b: '2'" in found["said"]
    # 0, 1 and 3 are the same in both: no difference is seen among three.
    assert found["contrasts"][0]["difference"] == "0.000000"


def test_other_texts_are_let_pass_only_when_said_and_counted(both, capsys):
    lines(both[1], (3, {"prompt_hash": "0" * 64}))
    found = compared(capsys, *both, "--prompts-differ")
    assert "toy: 1 problems had different prompts in a and b" in found["said"]


def test_one_of_several_metrics_or_filters_is_compared(tmp_path, capsys):
    paths = []
    for arm, scores in (("a", ONE), ("b", [0.0, 0.0, 1.0, 1.0])):
        strict = files.lm_eval(tmp_path / "x.jsonl", ONE, filter="strict-match").read_text()
        flexible = files.lm_eval(tmp_path / "y.jsonl", scores, filter="flexible-extract").read_text()
        paths.append(tmp_path / arm / "samples_gsm8k_2026-01-02T03-04-05.678901.jsonl")
        paths[-1].parent.mkdir()
        paths[-1].write_text(strict + flexible)
    own = {
        name: compared(capsys, *paths, "--filter", name)["contrasts"][0]["difference"]
        for name in ("strict-match", "flexible-extract")
    }
    assert own == {"strict-match": "0.000000", "flexible-extract": "0.250000"}
    assert "choose one of strict-match, flexible-extract" in refused(capsys, *paths, "--filter", "none")
    assert "metric: 'f1' does not exist" in refused(capsys, *paths, "--filter", "strict-match", "--metric", "f1")


def test_the_oldest_samples_are_a_list_without_hashes_or_filters(tmp_path, capsys):
    paths = []
    for arm in ("a", "b"):
        old = files.lm_eval(tmp_path / f"{arm}.jsonl", ONE)
        drop = ("filter", "metrics", "doc_hash", "prompt_hash", "target_hash")
        every = [json.loads(line) for line in old.read_text().splitlines()]
        old.write_text(json.dumps([{name: one[name] for name in one if name not in drop} for one in every]))
        paths.append(old)
    assert compared(capsys, *paths)["contrasts"][0]["n"] == 4
    text = paths[1].read_text()
    paths[1].write_text(text.replace("question 2", "question two"))
    assert "b.jsonl: item 3: id: '2' is a different question" in refused(capsys, *paths)
    paths[1].write_text(text.replace("Q: 2", "Q: two"))
    assert "b.jsonl: item 3: prompt: '2' has a different prompt" in refused(capsys, *paths)


def test_lengths_of_ruler_that_were_not_run_are_no_answers(tmp_path, capsys):
    """The harness scores a problem of 4096 tokens under "8192" as -1."""
    paths = []
    for arm in ("a", "b"):
        path = files.lm_eval(tmp_path / arm / "samples_niah_single_1.jsonl", ONE, "4096")
        path.write_text(
            "".join(
                json.dumps(json.loads(line) | {"metrics": ["4096", "8192"], "8192": -1.0}) + "\n"
                for line in path.read_text().splitlines()
            )
        )
        other = json.loads(path.read_text().splitlines()[0]) | {"doc_id": 9, "4096": -1.0, "8192": 1.0}
        path.write_text(path.read_text() + json.dumps(other))
        paths.append(path)
    found = compared(capsys, *paths, "--metric", "4096")
    assert found["contrasts"][0]["n"] == 4
    assert "samples_niah_single_1.jsonl: 1 problems whose length differs from 4096 are left out" in found["said"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda log: log["samples"].pop(), "id: 1 problems of 'toy' of a are not in b: 'p003'"),
        (lambda log: log["samples"][1].update(target="else"), "is a different question"),
        (lambda log: log["samples"][1].update(error={"message": "boom"}), "of b have no score: 'p001'"),
        (lambda log: log["samples"][1].update(scores={}), "score: 1 problems of 'toy' of b have no score"),
        (lambda log: log["samples"][1].update(epoch=2), "seed: 1 problems of 'toy' have different seeds"),
        (lambda log: log["samples"][1].update(epoch=None), "sample 2: epoch: is missing"),
        (lambda log: log["samples"].append(log["samples"][1]), "sample 5: id: 'p001' of b already occurred at"),
        (lambda log: log["samples"][1]["scores"].update(other={"value": 1}), "choose one with --metric: match, other"),
        (lambda log: log["samples"][1]["scores"].update(match={"value": "maybe"}), "match: 'maybe' is not a number"),
        (
            lambda log: log["samples"][1]["scores"].update(match={"value": {"a": 1, "b": 0}}),
            "choose one with --metric: match, match/a, match/b",
        ),
        (lambda log: log.update(status="cancelled"), "status: 'cancelled': the log did not finish; --common"),
        (lambda log: log.update(invalidated=True), "invalidated: this log was marked as invalid; run the"),
        (lambda log: log.update(samples=None), "samples: are missing"),
        (lambda log: log.update(eval=[]), "eval: is not an object"),
        (lambda log: log["eval"].update(task="other"), "task: b has no 'toy'"),
    ],
)
def test_a_log_that_does_not_fit_is_named(tmp_path, capsys, change, says):
    scores = [[one] for one in ONE]
    (tmp_path / "a.json").write_text(json.dumps(files.inspect_log(scores)))
    log = files.inspect_log(scores)
    change(log)
    (tmp_path / "b.json").write_text(json.dumps(log))
    assert says in refused(capsys, tmp_path / "a.json", tmp_path / "b.json")


def test_samples_that_ended_in_an_error_are_left_out_and_counted(tmp_path, capsys):
    log = files.inspect_log([[one] for one in ONE])
    files.inspect_zip(tmp_path / "a.eval", log)
    log["samples"][1]["error"] = {"message": "boom"}
    files.inspect_zip(tmp_path / "b.eval", log | {"status": "error"})
    found = compared(capsys, tmp_path / "a.eval", tmp_path / "b.eval", "--common")
    assert (found["contrasts"][0]["n"], found["contrasts"][0]["left_out"]) == (3, 1)
    assert "b.eval: status 'error'" in found["said"]
    assert "score: 1 problems of 'toy' of b have no score: 'p001'" in found["said"]


def test_samples_that_ran_into_a_limit_are_counted(tmp_path, capsys):
    """They are scored, mostly as wrong: an arm that thinks longer loses by them."""
    log = files.inspect_log([[one] for one in ONE])
    files.inspect_zip(tmp_path / "a.eval", log)
    log["samples"][1] |= {"limit": {"type": "token", "limit": 512}}
    files.inspect_zip(tmp_path / "b.eval", log)
    said = compared(capsys, tmp_path / "a.eval", tmp_path / "b.eval")["said"]
    assert [one for one in said if "limit" in one] == ["b.eval: 1 samples reached their limit (token)"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "id,arm,score\n1,a,1\n1,b\n",
            "line 3: has 2 cells, but the header has 3; quote each cell that contains a comma",
        ),
        ("id,arm,score\n1,a,1\n1,b,yes\n", "line 3: score: 'yes' is not a number"),
        ("id,arm,score\n1,a,1\n1,b,nan\n", "line 3: score: nan is not finite"),
        ("id,arm,score\n1,a,1\n1,b,0_1\n", "line 3: score: '0_1' is not a number"),
        ("id,arm,score\n1,a,1\n1,b,1.0000001\n", "line 3: score: 1.0000001 is outside"),
        ("id,arm,score\n1,a,1\n1,a ,1\n", "two names differ in spaces only; write them the same way"),
        ("id,arm,score\n1,a,1\n1,b,1e999\n", "line 3: score: inf is not finite"),
        ("id,arm,score\n1,a,1\n,b,1\n", "line 3: id: is empty"),
        ("id,arm,score\n1,a,1\n1,b,\n", "score: 1 problems of b have no score: '1'"),
        ("id,arm,score\n1,a,1\n1,a,1\n1,b,1\n", "line 3: id: '1' of a already occurred at"),
        ("id,arm,score\n1,a,1\n2,a,1\n", "arms: 'a' is the only arm"),
        (
            "id,arm,right\n1,a,1\n",
            "line 2: score: is not a column; the columns are id, arm, right; rename the one that has it",
        ),
        ("id,id,score\n", "line 1: two columns have the same name; rename one"),
        ("name,arm,score\n1,a,1\n", "line 1: id: is not among the columns"),
        ('id,arm,score\n1,"a,1\n', "is not valid CSV ("),
        ("id,arm,score\n1,a,1\n1,b,1\n", "1 problem(s) have no spread"),
        ("id,arm,score,cluster\n1,a,1,x\n2,a,1,\n1,b,1,x\n2,b,1,\n", "line 3: cluster: '' does not name a cluster"),
        (
            "id,arm,score,cluster\n1,a,1,x\n2,a,1,x\n1,b,1,y\n2,b,1,x\n",
            "'1' has 2 clusters; a problem must be in exactly one",
        ),
        ("id,arm,score,cluster\n1,a,1,x\n2,a,1,x\n1,b,1,x\n2,b,1,x\n", "1 clusters count as 1 of equal size"),
        ("id,arm,score,seed\n1,a,1,0\n1,b,1,1\n", "seed: 1 problems have different seeds in b: '1'"),
        ("", "is empty; name samples_*.jsonl"),
    ],
)
def test_a_table_that_does_not_fit_is_named(tmp_path, capsys, text, says):
    (tmp_path / "scores.csv").write_text(text)
    assert says in refused(capsys, tmp_path / "scores.csv")


def test_hostile_bytes_are_refused_in_one_line(tmp_path, capsys, both, monkeypatch):
    bad = tmp_path / "bad.jsonl"
    for data, says in [
        (b'{"doc_id": ' + b"[" * 100_000, "line 1: is nested too deeply"),
        (b'{"doc_id": 1, "x": ' + b"9" * 5_000 + b"}", "line 1: is not valid JSON (Exceeds the limit"),
        (b'{"doc_id": 1', "line 1: is not valid JSON"),
        (b"\xff\xfe\x00", "is not valid UTF-8; save the file as UTF-8"),
        (b"PK\x03\x04nothing", "is not a readable zip file ("),
        (b'{"results": {}}', "doc_id: is missing"),
    ]:
        bad.write_bytes(data)
        assert says in refused(capsys, both[0], bad), data[:20]
    whole = tmp_path / "results.json"
    whole.write_text('{"results": {"gsm8k": {}}, "configs": {}}')
    assert "samples: are missing; run lm-eval again with --log_samples" in refused(capsys, both[0], whole)
    (tmp_path / "link.jsonl").symlink_to(both[1])
    assert "is a symbolic link; name the file itself" in refused(capsys, both[0], tmp_path / "link.jsonl")
    os.mkfifo(tmp_path / "pipe.jsonl")
    assert "is not a plain file" in refused(capsys, both[0], tmp_path / "pipe.jsonl")
    assert "FileNotFoundError" in refused(capsys, both[0], tmp_path / "nowhere.jsonl")
    (tmp_path / "empty").mkdir()
    assert "contains no known result file; name" in refused(capsys, both[0], tmp_path / "empty")
    monkeypatch.setattr(files_of_formats, "machine_memory", lambda: 80)
    assert "bytes, but this machine can read only 10; use a machine with more memory" in refused(capsys, *both)


def test_a_bomb_is_let_go_of_before_it_is_whole(tmp_path, capsys, monkeypatch):
    bomb = tmp_path / "bomb.eval"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("samples/p_epoch_1.json", b" " * (1 << 24))
    assert bomb.stat().st_size < 1 << 15
    monkeypatch.setattr(files_of_formats, "machine_memory", lambda: 1 << 20)
    assert "samples/p_epoch_1.json: is larger than 131072 bytes, too large for a log" in refused(capsys, bomb, bomb)
    monkeypatch.setattr(untrusted_files, "ENTRIES", 0)
    assert "has 1 entries, and at most 0 are read" in refused(capsys, bomb, bomb)


@pytest.mark.parametrize(
    ("sizes", "method", "says"),
    [
        ([10, 10, 10], "t", "3 clusters count as 3 of equal size, and with fewer than 5 no interval is valid"),
        ([200, *[1] * 60], "sign-flip", "61 clusters count as 1 of equal size"),
        ([2] * 20, "bootstrap", "its interval is not valid with 20 clusters of equal size"),
        ([1] * 20, "bootstrap", "its interval is not valid with 20 clusters of equal size"),
    ],
)
def test_clusters_of_which_no_interval_holds_are_refused(tmp_path, capsys, sizes, method, says):
    names = [f"c{place}" for place, size in enumerate(sizes) for _ in range(size)]
    scores = {arm: [[i % few / 4] for i in range(len(names))] for arm, few in (("a", 3), ("b", 4))}
    table = files.table(tmp_path / "scores.csv", scores, cluster=names)
    assert says in refused(capsys, table, "--method", method)


def test_a_name_of_several_lines_makes_no_line_of_the_answer(tmp_path, capsys):
    path = tmp_path / "scores.csv"
    path.write_text(
        "id,arm,score\n"
        + "".join(f'{i},"{arm}",{i % few / 2}\n' for arm, few in (("a\nCONFIRMED", 2), ("b", 3)) for i in (1, 2))
    )
    assert main([str(path)]) == 0
    out = capsys.readouterr().out
    assert "a CONFIRMED - b" in out
    assert not any(line.startswith("CONFIRMED") for line in out.splitlines())
    row = next(line for line in out.splitlines() if "a CONFIRMED - b" in line)
    assert row.endswith("none")  # of two problems no difference is found that there can be


def test_names_that_a_terminal_obeys_are_shown(tmp_path, capsys):
    path = tmp_path / "scores.csv"
    path.write_text("id,arm,score\n" + "".join(f"{i},{arm},{i % 2}\n" for arm in ("\x1b[2Ja", "b") for i in (1, 2)))
    assert main([str(path)]) == 0
    assert "\\u001b[2Ja - b" in capsys.readouterr().out


def test_two_runs_of_a_task_in_a_folder_are_not_chosen_between(tmp_path, capsys, both):
    for stamp in ("2026-01-01T00-00-00.1", "2026-01-02T00-00-00.1"):
        files.lm_eval(tmp_path / "out" / "model" / f"samples_toy_{stamp}.jsonl", ONE)
    assert "has 2 files of the task 'toy'; name one of them" in refused(capsys, both[0], tmp_path / "out")
