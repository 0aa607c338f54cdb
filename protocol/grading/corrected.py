"""The second scores of LongBench and RULER, which the end of an answer alone does not change.

Eviction changes how answers end: they continue too long or collapse, and several official scores react to
that rather than to the answer. Both scores are recorded; the official one decides.
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
    """Return a scorer that takes the best grade over the row's answers."""
    return lambda row, text: best(grade, tuple(row["answers"]), text)


def first_line(score: Callable[[Row, str], Grade]) -> Callable[[Row, str], Grade]:
    """Return a scorer of the first non-empty line, as LongBench cuts its few-shot tasks, whose models
    continue with another example. lm-eval stops at the first line feed, also before the answer.
    """
    return lambda row, text: score(row, next((line for line in said(text).splitlines() if line.strip()), ""))


def classified(row: Row, text: str) -> Grade:
    """Return 1 if the class stated last is right, else 0. LongBench divides by all classes that occur, and
    counts some nested names twice.
    """
    named = last_class(said(text), row["all_classes"])
    right = named is not None and named in row["answers"]
    other = "no class is stated" if named is None else "another class is stated"
    return scored(right, named, "" if right else other)


def counted(row: Row, text: str) -> Grade:
    """Return 1 if the number that the text states is right, else 0. LongBench divides by all numbers of the
    text.
    """
    return _numbered(tuple(str(one) for one in row["answers"]), text)


def retrieved(row: Row, text: str) -> Grade:
    """Return 1 if the stated paragraph is right, "Paragraph 7" or 7, else 0."""
    return _numbered(tuple(re.sub(r"\D", "", one) for one in row["answers"]), text)


def found(row: Row, text: str) -> Grade:
    """Return the share of RULER's values that the text contains as separate words. RULER also counts 7 in 17,
    and values that only the thought contains.
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
# By lm-eval's task names without "longbench_", which are LongBench's names.
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
    """Return our scorer of an lm-eval task; None if there is none. LongBench-E uses LongBench's."""
    if task.startswith(("niah_", "ruler_")):
        return Corrected(found)
    subset = task.removeprefix("longbench_").removesuffix("_e")
    return Corrected(SCORERS[subset]) if task.startswith("longbench_") and subset in SCORERS else None
