"""Predictions of kvpress: scored as its evaluation scores them, and only where its own mean agrees."""

import json
from pathlib import Path

import pytest

from analysis.compare.__main__ import main
from analysis.compare.kvpress_predictions import (
    match_boxed,
    match_first_boxed,
    match_letter,
    match_strings,
    parse_texts,
)
from analysis.compare.scored_answers import ResultError

HEAD = "task,answer_prefix,predicted_answer,question,answer,max_new_tokens,compression_ratio\n"


def run(folder: Path, answers: list[str], means: dict, dataset: str = "ruler", gold: str = "['71' '86']") -> Path:
    """The folder of one evaluation: references printed as numpy does, answers as pandas quotes them."""
    folder.mkdir()
    rows = [f'niah_multi,The,"{text}",q{number},"{gold}",128,0.5' for number, text in enumerate(answers)]
    (folder / "predictions.csv").write_text(HEAD + "\n".join(rows) + "\n")
    (folder / "metrics.json").write_text(json.dumps(means))
    (folder / "config.yaml").write_text(f"dataset: {dataset}\nmodel: m\ncompression_ratio: 0.5\n")
    return folder


def found(capsys, *arguments: object) -> dict:
    assert main([*map(str, arguments), "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def refused(capsys, *arguments: object) -> str:
    assert main(list(map(str, arguments))) == 2
    return capsys.readouterr().err


def test_the_share_of_the_references_that_an_answer_has(tmp_path, capsys):
    own = run(tmp_path / "a", ["71 and 86", "only 86, no", "neither"], {"niah_multi": {"string_match": 50.0}})
    other = run(tmp_path / "b", ["71", "", "71, 86"], {"niah_multi": {"string_match": 50.0}})
    row = found(capsys, own, other)["contrasts"][0]
    # Halves: (1, .5, 0) against (.5, 0, 1).
    assert (row["task"], row["gains"], row["losses"], row["difference"]) == ("niah_multi", 2, 1, "0.000000")


def test_a_mean_that_is_not_that_of_the_answers_is_refused(tmp_path, capsys):
    own = run(tmp_path / "a", ["71 and 86", "no"], {"niah_multi": {"string_match": 50.0}})
    other = run(tmp_path / "b", ["71", "71"], {"niah_multi": {"string_match": 50.01}})
    assert "metrics.json: niah_multi.string_match: is 50.01, but the answers of predictions.csv give 50.00" in (
        refused(capsys, own, other)
    )
    (other / "metrics.json").unlink()
    assert any(
        "there is no metrics.json next to it, so that its scores" in one for one in found(capsys, own, other)["said"]
    )


def test_rows_that_ask_for_something_else_are_not_paired(tmp_path, capsys):
    means = {"niah_multi": {"string_match": 50.0}}
    own, other = (run(tmp_path / name, ["71 86", "no"], means) for name in "ab")
    text = (other / "predictions.csv").read_text()
    (other / "predictions.csv").write_text(text.replace("q1,\"['71' '86']", "q1,\"['71' '87']"))
    assert "line 3: id: '2' is a different question" in refused(capsys, own, other)
    (other / "predictions.csv").write_text(text.replace(",q1,", ",,"))
    assert "line 3: prompt: '2' has a different prompt at" in refused(capsys, own, other)
    assert found(capsys, own, other, "--prompts-differ")["contrasts"][0]["n"] == 2


def test_a_benchmark_that_is_scored_by_other_packages_is_refused(tmp_path, capsys):
    own, other = (run(tmp_path / name, ["x"], {}, "longbench") for name in "ab")
    assert "dataset: 'longbench' needs a scorer that is not installed" in refused(capsys, own, other)
    for folder in (own, other):
        scored = "id,score\n" + "".join(f"{i},{i % 2}\n" for i in range(4))
        (folder / "predictions.csv").write_text(scored)
    assert found(capsys, own, other)["contrasts"][0]["n"] == 4


def test_the_other_scorers(tmp_path, capsys):
    own = run(tmp_path / "a", ["so \\boxed{71}", "\\boxed{1} or \\boxed{71}"], {"accuracy": 1.0}, "aime25", "71")
    other = run(tmp_path / "b", ["71", "\\boxed{1}"], {"accuracy": 0.5}, "aime25", "71")
    assert found(capsys, own, other)["contrasts"][0]["difference"] == "0.500000"
    assert match_first_boxed("\\boxed{1} or \\boxed{71}", {"answer": "71"}, "") == 0
    assert match_first_boxed("71", {"answer": "71"}, "") == 0
    assert match_boxed("71", {"answer": "71"}, "") == 1  # as its authors' code has it
    assert match_letter("**The correct answer is (B)**", {"answer": "B"}, "") == 1
    assert match_letter("The correct answer is C", {"answer": "B"}, "") == 0
    assert match_strings("The ANSWER\n is 71", {"answer": "['answer', 'gone']", "task": "qa_1"}, "") == 1
    assert match_strings("The ANSWER is", {"answer": "['answer', 'gone']", "task": "vt"}, "") == 0.5


@pytest.mark.parametrize(
    ("text", "texts"),
    [
        ("['71' '86']", ["71", "86"]),  # Python would make 7186 of it
        ("['71', '86']", ["71", "86"]),
        ("['71'\n \"it's\"]", ["71", "it's"]),
        ("71", ["71"]),
    ],
)
def test_references_are_read_however_they_were_printed(text, texts):
    assert parse_texts(text, "x") == texts


@pytest.mark.parametrize("text", ["", "[]", "['a' ... 'b']", "[1 2]", "['a' + 'b']", "[__import__('os')]"])
def test_what_is_no_list_of_references_is_refused(text):
    with pytest.raises(ResultError, match=r"x: answer: .* is not a list of texts"):
        parse_texts(text, "x")


def test_our_files_and_theirs_are_not_taken_for_the_same_questions(tmp_path, capsys):
    own = run(tmp_path / "a", ["71 and 86", "no"], {"niah_multi": {"string_match": 50.0}})
    rows = "id,score,task\n1,1,niah_multi\n2,0,niah_multi\n"
    (tmp_path / "b.csv").write_text(rows)
    said = found(capsys, own, tmp_path / "b.csv")["said"]
    assert "niah_multi: 2 problems of a and b are paired by id alone" in " ".join(said)
