"""The second opinion on LongBench and RULER: scores that the end of an answer alone does not move.

What eviction changes, answers that go on and on or collapse, moves several of the official scores by
something other than the answer. Both are recorded; the official one decides.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from protocol.grading import code, f1, rouge
from protocol.grading.choice import last_class
from protocol.grading.grade import Grade, best, scored
from protocol.grading.number import number
from protocol.grading.said import plain, said, shown

__all__ = ["SCORERS", "Corrected", "scorer"]

Row = Mapping[str, Any]


class Corrected(NamedTuple):
    """A grader whose gold answer is a row of the task's data, as JSON."""

    score: Callable[[Row, str], Grade]

    def grade(self, gold: str, text: str) -> Grade:
        return self.score(json.loads(gold), text)


def answers(grade: Callable[[str, str], Grade]) -> Callable[[Row, str], Grade]:
    """The grade by that of the row's answers which the text meets best."""
    return lambda row, text: best(grade, tuple(row["answers"]), text)


def first_line(score: Callable[[Row, str], Grade]) -> Callable[[Row, str], Grade]:
    """Of the first line that holds anything, as LongBench cuts its few-shot tasks, whose models go on with
    another example. lm-eval stops at the first line feed, also before the answer.
    """
    return lambda row, text: score(row, next((line for line in said(text).splitlines() if line.strip()), ""))


def classified(row: Row, text: str) -> Grade:
    """1 for the class that is stated last, 0 for another one. LongBench divides by all classes that occur,
    and counts some names inside one another twice.
    """
    named = last_class(said(text), row["all_classes"])
    right = named is not None and named in row["answers"]
    other = "no class is stated" if named is None else "another class is stated"
    return scored(right, named, "" if right else other)


def counted(row: Row, text: str) -> Grade:
    """1 for the number that the text states. LongBench divides by all numbers of the text."""
    return _numbered(tuple(str(one) for one in row["answers"]), text)


def retrieved(row: Row, text: str) -> Grade:
    """1 for the paragraph that the text states, "Paragraph 7" or 7."""
    return _numbered(tuple(re.sub(r"\D", "", one) for one in row["answers"]), text)


def found(row: Row, text: str) -> Grade:
    """The share of RULER's values that the text says as words of their own. RULER also counts 7 in 17, and
    values that a thought alone names.
    """
    wanted = [plain(one) for one in row["outputs"]]
    answer = said(text)
    words = plain(answer)
    hits = [re.search(rf"(?<!\w){re.escape(one)}(?!\w)", words) is not None for one in wanted]
    score = sum(hits) / len(hits)
    return scored(score, shown(answer), "" if score == 1 else f"{sum(hits)} of {len(hits)} values are said")


def _numbered(wanted: Sequence[str], text: str) -> Grade:
    stated = number(said(text))
    right = stated is not None and stated in wanted
    other = "no number is stated" if stated is None else "another number is stated"
    return scored(right, stated, "" if right else other)


QA, SUMMARY, CODE = answers(f1.grade), answers(rouge.grade), answers(code.grade)
# By the names that lm-eval gives the tasks; LongBench's own are the same without the first word.
SCORERS: Mapping[str, Callable[[Row, str], Grade]] = MappingProxyType(
    {
        **dict.fromkeys(("narrativeqa", "qasper", "multifieldqa_en", "hotpotqa", "2wikimqa", "musique"), QA),
        **dict.fromkeys(("gov_report", "qmsum", "multi_news"), SUMMARY),
        "triviaqa": first_line(QA),
        "samsum": first_line(SUMMARY),
        "trec": first_line(classified),
        "passage_count": counted,
        "passage_retrieval_en": retrieved,
        **dict.fromkeys(("lcc", "repobench-p"), CODE),
    }
)


def scorer(task: str) -> Corrected | None:
    """Of a task of lm-eval; None where there is none of ours. LongBench-E has LongBench's."""
    if task.startswith(("niah_", "ruler_")):
        return Corrected(found)
    subset = task.removeprefix("longbench_").removesuffix("_e")
    return Corrected(SCORERS[subset]) if task.startswith("longbench_") and subset in SCORERS else None
