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
from protocol.grading.answer_text import excerpt, extract_answer, normalize
from protocol.grading.choice import find_last_class
from protocol.grading.grade import Grade, best_grade, make_score
from protocol.grading.number import extract_number

Row = Mapping[str, Any]


class CorrectedScorer(NamedTuple):
    """A grader whose gold answer is a row of the task's data, as JSON."""

    score: Callable[[Row, str], Grade]

    def grade(self, gold: str, text: str) -> Grade:
        return self.score(json.loads(gold), text)


def best_of_answers(grade: Callable[[str, str], Grade]) -> Callable[[Row, str], Grade]:
    """Return a scorer that takes the best grade over the row's answers."""
    return lambda row, text: best_grade(grade, tuple(row["answers"]), text)


def on_first_line(score: Callable[[Row, str], Grade]) -> Callable[[Row, str], Grade]:
    """Return a scorer of the first non-empty line, as LongBench cuts its few-shot tasks, whose models
    continue with another example. lm-eval stops at the first line feed, also before the answer.
    """
    return lambda row, text: score(row, next((line for line in extract_answer(text).splitlines() if line.strip()), ""))


def score_class(row: Row, text: str) -> Grade:
    """Return 1 if the class stated last is right, else 0. LongBench divides by all classes that occur, and
    counts some nested names twice.
    """
    stated_class = find_last_class(extract_answer(text), row["all_classes"])
    is_correct = stated_class is not None and stated_class in row["answers"]
    reason = "no class is stated" if stated_class is None else "another class is stated"
    return make_score(is_correct, stated_class, "" if is_correct else reason)


def score_count(row: Row, text: str) -> Grade:
    """Return 1 if the number that the text states is right, else 0. LongBench divides by all numbers of the
    text.
    """
    return _score_number(tuple(str(answer) for answer in row["answers"]), text)


def score_paragraph(row: Row, text: str) -> Grade:
    """Return 1 if the stated paragraph is right, "Paragraph 7" or 7, else 0."""
    return _score_number(tuple(re.sub(r"\D", "", answer) for answer in row["answers"]), text)


def score_values(row: Row, text: str) -> Grade:
    """Return the share of RULER's values that the text contains as separate words. RULER also counts 7 in 17,
    and values that only the thought contains.
    """
    values = [normalize(value) for value in row["outputs"]]
    answer = extract_answer(text)
    words = normalize(answer)
    hits = [re.search(rf"(?<!\w){re.escape(value)}(?!\w)", words) is not None for value in values]
    score = sum(hits) / len(hits)
    return make_score(score, excerpt(answer), "" if score == 1 else f"{sum(hits)} of {len(hits)} values are said")


def _score_number(golds: Sequence[str], text: str) -> Grade:
    stated_number = extract_number(extract_answer(text))
    is_correct = stated_number is not None and stated_number in golds
    reason = "no number is stated" if stated_number is None else "another number is stated"
    return make_score(is_correct, stated_number, "" if is_correct else reason)


QA, SUMMARY, CODE = best_of_answers(f1.grade), best_of_answers(rouge.grade), best_of_answers(code.grade)
# By lm-eval's task names without "longbench_", which are LongBench's names.
SCORERS: Mapping[str, Callable[[Row, str], Grade]] = MappingProxyType(
    {
        **dict.fromkeys(("narrativeqa", "qasper", "multifieldqa_en", "hotpotqa", "2wikimqa", "musique"), QA),
        **dict.fromkeys(("gov_report", "qmsum", "multi_news"), SUMMARY),
        "triviaqa": on_first_line(QA),
        "samsum": on_first_line(SUMMARY),
        "trec": on_first_line(score_class),
        "passage_count": score_count,
        "passage_retrieval_en": score_paragraph,
        **dict.fromkeys(("lcc", "repobench-p"), CODE),
    }
)


def get_scorer(task: str) -> CorrectedScorer | None:
    """Return our scorer of an lm-eval task; None if there is none. LongBench-E uses LongBench's."""
    if task.startswith(("niah_", "ruler_")):
        return CorrectedScorer(score_values)
    subset = task.removeprefix("longbench_").removesuffix("_e")
    return CorrectedScorer(SCORERS[subset]) if task.startswith("longbench_") and subset in SCORERS else None
