"""Token F1 of an answer, as SQuAD and LongBench score question answering."""

from collections import Counter

from protocol.grading.grade import Grade, scored
from protocol.grading.said import said, shown, words

__all__ = ["grade"]


def grade(gold: str, text: str) -> Grade:
    """Return 2 p r / (p + r) over the words of both as bags (arXiv:1606.05250, section 6.1).

    Departs from LongBench's `qa_f1_score`: a thought before the answer and special tokens are not part of it,
    and punctuation and case follow Unicode. A gold answer without words gives "error".
    """
    wanted, answer = words(gold), said(text)
    if not wanted:
        return Grade("error", None, "the gold answer has no words")
    given = words(answer)
    if not given:
        return scored(0, shown(answer), "the answer has no words")
    same = (Counter(given) & Counter(wanted)).total()
    score = 2 * same / (len(given) + len(wanted))
    return scored(score, shown(answer), "" if score == 1 else f"{same} of its {len(wanted)} words")
