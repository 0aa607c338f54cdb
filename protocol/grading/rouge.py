"""ROUGE-L of an answer: F1 of the longest common subsequence of words (Lin 2004, section 3.1)."""

import re
import unicodedata

from protocol.grading import common
from protocol.grading.grade import Grade, scored
from protocol.grading.said import said, shown

__all__ = ["WORDS", "grade", "words"]

WORDS = 4_000  # words compared, from the beginning of an answer
WORD = re.compile(r"\w+")


def grade(gold: str, text: str) -> Grade:
    """Return F1 with beta = 1, over the whole text as one sentence, without stemming.

    Departs from the `rouge` package that LongBench calls: that one cuts sentences at full stops, takes the
    union of their subsequences, and for a long text without one exceeds the recursion limit, which LongBench
    counts as 0. A gold answer without words gives "error".
    """
    wanted, answer = words(gold), said(text)
    if not wanted:
        return Grade("error", None, "the gold answer has no words")
    given = words(answer)
    if not given:
        return scored(0, shown(answer), "the answer has no words")
    score = common.similarity(wanted, given)
    return scored(score, shown(answer), "" if score == 1 else "not its words in their order")


def words(text: str) -> list[str]:
    """Return the runs of letters, digits and underscores, case folded, at most 4,000."""
    return WORD.findall(unicodedata.normalize("NFKC", text).casefold())[:WORDS]
