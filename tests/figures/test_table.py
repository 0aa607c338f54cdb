import re

import judgements
import pytest

from figures.table import verdict_table
from protocol.formats import terminal


def lines(judged: dict) -> list[str]:
    return verdict_table(judged).splitlines()


LONG = "a-model-with-a-very-long-name-of-its-own-" * 3


@pytest.mark.parametrize(
    "judged",
    [
        judgements.judgement(),
        judgements.sixteen(),
        judgements.judgement([judgements.contrast(LONG, *judgements.FIVE["lacache"], model=LONG, task=LONG)]),
        judgements.judgement(title="A title of many words " * 12, proves=["A long sentence " * 20]),
    ],
    ids=["five", "sixteen", "long names", "long text"],
)
def test_in_a_pipe_text_has_110_columns_and_rows_have_whole_names(judged):
    shown = lines(judged)
    assert "\N{HORIZONTAL ELLIPSIS}" not in "".join(shown)
    entries = [*judged["contrasts"], *judged["arms"]]
    rows = [line for line in shown if any(line.startswith(f"{entry['model']}  ") for entry in entries)]
    assert len(rows) == len(entries)
    text = [line for line in shown if line not in rows and not line.startswith("model ")]
    assert all(len(line) <= 110 or LONG in line for line in text)  # no word is broken


@pytest.mark.parametrize("columns", [60, 72, 90, 160])
@pytest.mark.parametrize("judged", [judgements.judgement(), judgements.sixteen()], ids=["five", "sixteen"])
def test_a_narrow_terminal_gets_every_number_and_no_wider_line(monkeypatch, judged, columns):
    monkeypatch.setattr(terminal, "_is_terminal", lambda _: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    shown = lines(judged)
    assert max(map(len, shown)) <= columns
    text = " ".join(" ".join(shown).split())
    monkeypatch.undo()
    assert sorted(numbers(text)) == sorted(numbers(" ".join(lines(judged))))


def numbers(text: str) -> list[str]:
    return re.findall("(?<= )[+\N{MINUS SIGN}-]?\\d+\\.\\d+(?= )", f" {text} ")


@pytest.mark.parametrize("judged", [judgements.judgement(), judgements.sixteen()], ids=["five", "sixteen"])
def test_every_contrast_and_every_arm_has_one_row(judged):
    shown = [line.split() for line in lines(judged)]
    head = shown.index(["model", "task", "budget", "against", "n", "pp", "95", "%", "interval", "p", "cache"])
    contrasts = shown[head + 1 : shown.index([], head)]
    assert len(contrasts) == len(judged["contrasts"])
    for row, one in zip(contrasts, judged["contrasts"], strict=True):
        assert names(row, one, "against")
        assert row[4] == "96"
    head = next(i for i, row in enumerate(shown) if row[3:5] == ["arm", "accuracy"])
    arms = shown[head + 1 : shown.index([], head)]
    for row, one in zip(arms, judged["arms"], strict=True):
        assert names(row, one, "arm")
        assert row[4] == "0.812"


def names(row: list[str], one: dict, last: str) -> bool:
    """The first four cells are these names, whole or both ends of them, at least twelve characters."""
    whole = [one[key] for key in ("model", "task", "budget", last)]
    ends = [cell.partition("\N{HORIZONTAL ELLIPSIS}") for cell in row[:4]]
    return all(
        name == start or (name.startswith(start) and name.endswith(end) and len(start + end) >= 12)
        for name, (start, _, end) in zip(whole, ends, strict=True)
    )


def test_names_that_differ_at_their_ends_are_told_apart_where_they_are_shortened():
    tasks = [f"a-task-of-a-very-long-name-indeed-{length}" for length in (512, 1024)]
    rows = [judgements.arm("crystal", model=LONG, task=task) for task in tasks]
    shown = [line.split() for line in lines(judgements.judgement(arms=rows))]
    (one, other) = [row[1] for row in shown if row[3:4] == ["crystal"]]
    assert one != other
    assert one.endswith("512")
    assert other.endswith("1024")


@pytest.mark.parametrize(
    ("against", "row"),
    [
        ("snapkv", "+12.5  [+4.2, +20.8]  0.0001  1.004  better"),
        ("h2o", "+1.0  [\N{MINUS SIGN}2.1, +4.2]  0.5120  1.004"),
        ("random", "+10.0  [+2.0, +18.0]  <0.0001  1.250  unmatched"),
        ("lacache", "\N{MINUS SIGN}9.4  [\N{MINUS SIGN}14.6, \N{MINUS SIGN}4.2]  0.0010  1.004  worse"),
        ("streaming", "not estimated"),
    ],
)
def test_a_row_prints_what_was_judged(against, row):
    (line,) = [one for one in lines(judgements.judgement()) if f" {against} " in one and " 96 " in one]
    assert line.split()[5:] == row.split()


def test_the_numbers_of_a_column_end_below_each_other():
    found = lines(judgements.judgement())
    head = next(line for line in found if line.startswith("model") and "interval" in line)
    rows = [line for line in found if line.startswith("tiny") and "]" in line]
    assert {line.index("]") + 1 for line in rows} == {head.index("interval") + len("interval")}


def test_verdict_rule_and_both_lists_of_sentences_are_shown():
    found = lines(judgements.judgement(proves=["One thing."], verdict="CONFIRMED"))
    assert found[0] == "CONFIRMED for tiny alone  n < 200  UNANCHORED  A small study"
    assert found[3] == "no gate: nothing shows that the full cache can do the task"
    assert found[1].startswith("rule superior: crystal better in at least 3 of 5 contrasts, worse in none; ")
    assert found[found.index("Proves") + 1] == "- One thing."
    assert found[found.index("Does not prove") + 1].startswith("- Equality")


def test_a_study_that_proves_nothing_says_so():
    found = lines(judgements.judgement())
    assert found[found.index("Proves") + 1] == "- nothing"


def test_both_branches_stand_beside_the_verdict():
    judged = judgements.judgement(rule="branch", branch={"registered": "B", "symmetric": "C"}, at_least=None)
    assert lines(judged)[0].startswith("INCONCLUSIVE (branch B, symmetric C) for tiny alone  ")


def test_missing_lanes_are_counted():
    missing = {"rule": "inconclusive", "registered": 672, "lanes": 3, "cells": []}
    assert "3 of 672 lanes have no grade" in lines(judgements.judgement(missing=missing))
    assert not any("have no grade" in line for line in lines(judgements.judgement()))


def test_an_arm_that_was_never_measured_has_blanks_and_its_failures():
    nothing = dict.fromkeys(("accuracy", "mean_slots", "peak_slots", "mean_tokens"))
    judged = judgements.judgement(arms=[judgements.arm("h2o", **nothing, failed=96), judgements.arm("full")])
    (row,) = [line for line in lines(judged) if line.split()[3:4] == ["h2o"] and "[" not in line]
    assert row.split() == ["tiny", "needle-512", "0.5", "h2o", "2", "1", "96"]


def test_what_was_charged_for_memory_has_a_column_where_anything_was():
    equal, more, blind, unmatched = (judgements.contrast(name, *judgements.FIVE["snapkv"]) for name in "abcd")
    equal["memory"] = {"excess": "0.000000", "charge": "0.000000"}
    more["memory"] = {"excess": "0.003906", "charge": "0.012000"}
    blind["memory"] = {"excess": "-0.000100", "charge": None}
    unmatched |= {"matched": False, "memory": {"excess": "0.250000", "charge": None}}
    shown = [line.split() for line in lines(judgements.judgement([equal, more, blind, unmatched]))]
    (head,) = [row for row in shown if row[-2:] == ["cache", "charge"]]
    rows = shown[shown.index(head) + 1 :][:4]
    assert [row[-2] for row in rows[1:3]] == ["+1.2", "all"]
    assert [row[-2] for row in (rows[0], rows[3])] == ["1.004", "1.004"]
    note = "charge: points that a difference in memory may have bought; p tests for a difference beyond them."
    assert note.split() in shown
    assert not any("charge" in row or "charge:" in row for row in map(str.split, lines(judgements.judgement([equal]))))


def test_a_contrast_in_clusters_has_both_counts_and_one_of_scores_says_what_is_meant():
    row = judgements.contrast("snapkv", *judgements.FIVE["snapkv"])
    plain = lines(judgements.judgement([row]))
    assert not any("score" in line or "clusters" in line for line in plain)
    shown = lines(judgements.judgement([row | {"clusters": 24, "scored": True}]))
    assert any(" 96/24 " in line for line in shown)
    assert any(line.startswith("Accuracy is the mean score") for line in shown)
    assert "n: problems/clusters. Intervals and p resample whole clusters." in shown
