"""Rows that are missing are weighed, and rows in another order are paired by question."""

import csv
import json

import pandas as pd
import pytest
import result_files as files
from test_compare import compared, refused

import kv_prereg as kvp


def scores_file(path, rows, columns=("id", "score")):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([columns, *rows])
    return path


def said(found, words):
    return [note for note in found["said"] if words in note]


N = 240
OWN = [number % 20 < 12 for number in range(N)]  # 60 %
OTHER = [(number % 20 < 10 and number % 3 > 0) or number % 20 > 17 for number in range(N)]


def test_half_of_the_wrong_answers_absent_are_bounded_and_warned_about(tmp_path, capsys):
    absent = {number for number in range(N) if not OWN[number] and number % 2}
    own = scores_file(tmp_path / "own.csv", [(f"p{n}", int(OWN[n])) for n in range(N) if n not in absent])
    other = scores_file(tmp_path / "other.csv", [(f"p{n}", int(OTHER[n])) for n in range(N)])
    assert "id: 48 problems of other are not in own" in refused(capsys, own, other)
    found = compared(capsys, own, other, "--common")
    (row,) = found["contrasts"]
    # By hand: what is absent is wrong or right in the first arm.
    total = sum(OWN) - sum(OTHER)
    assert float(row["low_bound"]) == pytest.approx(total / N, abs=1e-6)
    assert float(row["high_bound"]) == pytest.approx((total + 48) / N, abs=1e-6)
    assert float(row["difference"]) > total / N + 0.05
    (note,) = said(found, "whatever their missing scores")
    assert note == (
        "48 problems of own or other are left out; whatever their missing scores, the difference over all problems is "
        f"between {100 * total / N:+.1f} and {100 * (total + 48) / N:+.1f} points"
    )
    (warned,) = said(found, "WARNING")
    there, elsewhere = (100 * sum(OTHER[n] for n in which) / len(which) for which in (absent, set(range(N)) - absent))
    assert warned.endswith(f"on those problems other scores {there:.1f} %, and on the others {elsewhere:.1f} %")


def test_rows_absent_by_chance_are_bounded_on_both_sides_without_a_warning(tmp_path, capsys):
    own = scores_file(tmp_path / "own.csv", [(f"p{n}", int(OWN[n])) for n in range(N) if n % 20 != 3])
    other = scores_file(tmp_path / "other.csv", [(f"p{n}", int(OTHER[n])) for n in range(N) if n % 24 != 5])
    found = compared(capsys, own, other, "--common")
    low, high = 0, 0
    for n in range(N):
        first = (0, 1) if n % 20 == 3 else (OWN[n], OWN[n])
        second = (0, 1) if n % 24 == 5 else (OTHER[n], OTHER[n])
        low, high = low + first[0] - second[1], high + first[1] - second[0]
    row = found["contrasts"][0]
    assert [float(row["low_bound"]), float(row["high_bound"])] == pytest.approx([low / N, high / N], abs=1e-6)
    assert not said(found, "WARNING")
    full = compared(capsys, files.table(tmp_path / "all.csv", files.SCORES))
    assert not said(full, "whatever their missing scores")
    assert all(row["low_bound"] == row["difference"] == row["high_bound"] for row in full["contrasts"])


def test_scores_between_zero_and_one_and_single_seeds_are_weighed_too():
    rows = [("a", 0, 0, 0.5), ("a", 0, 1, None), ("a", 1, 0, 0.25), ("a", 1, 1, 0.75)]
    rows += [("a", 2, 0, 0.5), ("a", 2, 1, 0.5)]
    rows += [("b", problem, seed, 0.5) for problem in range(3) for seed in range(2)]
    frame = pd.DataFrame(rows, columns=["arm", "id", "seed", "score"])
    (found,) = kvp.compare(frame, common=True).contrast_list
    # Problem 0: (0.5 + 0 to 1) / 2 - 0.5; the others 0.
    assert (found.low_bound, found.high_bound) == pytest.approx((-0.25 / 3, 0.25 / 3))


def shuffled(lines):
    """Another order, in which no line is where it was."""
    return lines[7:] + lines[:7]


def test_samples_in_another_order_are_paired_by_what_was_asked(tmp_path, capsys):
    first, second = (files.lm_eval(tmp_path / name / "samples_t.jsonl", OWN[:60]) for name in "ab")
    lines = [json.loads(line) for line in second.read_text().splitlines()]
    numbered = [line | {"doc_id": number} for number, line in enumerate(shuffled(lines))]
    second.write_text("".join(json.dumps(line) + "\n" for line in numbered))
    found = compared(capsys, first, second)
    assert (found["contrasts"][0]["gains"], found["contrasts"][0]["losses"]) == (0, 0)
    assert said(found, "paired by question")
    # One question of another version is no order.
    second.write_text(
        "".join(json.dumps(line | ({"target": "x"} if line["doc_id"] == 9 else {})) + "\n" for line in numbered)
    )
    assert "is a different question" in refused(capsys, first, second)


def test_tables_and_frames_that_tell_the_question_are_paired_by_it(tmp_path, capsys):
    rows = [(number, int(OWN[number]), f"question {number}") for number in range(60)]
    columns = ("id", "score", "question")
    other = [(number, score, question) for number, (_, score, question) in enumerate(shuffled(rows))]
    paths = [scores_file(tmp_path / f"{name}.csv", some, columns) for name, some in (("a", rows), ("b", other))]
    found = compared(capsys, *paths)
    assert (found["contrasts"][0]["gains"], found["contrasts"][0]["losses"]) == (0, 0)
    frame = pd.concat([pd.read_csv(path).assign(arm=path.stem) for path in paths])
    assert kvp.compare(frame).contrast_list[0].difference == 0
    # Twice the same question: nothing tells which is which.
    twice = [(number, score, "one") for number, score, _ in other]
    assert "is a different question" in refused(capsys, paths[0], scores_file(tmp_path / "c.csv", twice, columns))
    halves = [
        [(number, score, f"question {int(text[9:]) // 2}") for number, score, text in some] for some in (rows, other)
    ]
    paths = [scores_file(tmp_path / f"d{name}.csv", some, columns) for name, some in zip("ab", halves, strict=True)]
    assert "is a different question" in refused(capsys, *paths)


def test_predictions_in_another_order_are_paired_by_their_question(tmp_path, capsys):
    def predictions(name, order):
        rows = [(f"has {number}", f"['{number}', 'x']", f"question {number}", "niah") for number in order]
        folder = tmp_path / name
        folder.mkdir()
        scores_file(folder / "predictions.csv", rows, ("predicted_answer", "answer", "question", "task"))
        return folder

    found = compared(capsys, predictions("a", range(10, 60)), predictions("b", shuffled(list(range(10, 60)))))
    assert (found["contrasts"][0]["gains"], found["contrasts"][0]["losses"]) == (0, 0)


def test_bare_numbers_without_a_question_are_warned_about(tmp_path, capsys):
    paths = [scores_file(tmp_path / f"{name}.csv", [(n, int(OWN[n])) for n in range(60)]) for name in "ab"]
    assert said(compared(capsys, *paths), "the pairs are wrong; add a column `question`")
    named = [scores_file(tmp_path / f"n{name}.csv", [(f"p{n}", int(OWN[n])) for n in range(60)]) for name in "ab"]
    (note,) = said(compared(capsys, *named), "by id alone")
    assert "numbers" not in note


def test_samples_of_two_versions_are_checked_by_what_both_tell(tmp_path, capsys):
    """Older samples have no hashes: the doc of both still has to agree."""
    new = files.lm_eval(tmp_path / "a" / "samples_t.jsonl", OWN[:40])
    lines = [json.loads(line) for line in new.read_text().splitlines()]
    dropped = ("doc_hash", "prompt_hash", "target_hash")
    old = [{name: value for name, value in line.items() if name not in dropped} for line in lines]
    path = tmp_path / "b" / "samples_t.jsonl"
    path.parent.mkdir()
    path.write_text("".join(json.dumps(line) + "\n" for line in old))
    assert not said(compared(capsys, new, path), "by id alone")
    old[3]["doc"] = {"question": "else"}
    path.write_text("".join(json.dumps(line) + "\n" for line in old))
    assert "is a different question" in refused(capsys, new, path)
