"""ROUGE-L of an answer: F1 of the longest common subsequence of words (Lin 2004, section 3.1)."""

import re
import unicodedata

from protocol.grading import common_subsequence
from protocol.grading.grade import Grade
from protocol.grading.word_grade import grade_words

MAX_WORDS = 4_000  # words compared, from the beginning of an answer
WORD = re.compile(r"\w+")


def grade(gold: str, text: str) -> Grade:
    """Return F1 with beta = 1, over the whole text as one sentence, without stemming.

    Departs from the `rouge` package that LongBench calls: that one cuts sentences at full stops, takes the
    union of their subsequences, and for a long text without one exceeds the recursion limit, which LongBench
    counts as 0. A gold answer without words gives "error".
    """
    return grade_words(gold, text, split_words, _compare)


def _compare(gold_words: list[str], answer_words: list[str]) -> tuple[float, str]:
    return common_subsequence.similarity(gold_words, answer_words), "not its words in their order"


def split_words(text: str) -> list[str]:
    """Return the runs of letters, digits and underscores, case folded, at most 4,000."""
    return WORD.findall(unicodedata.normalize("NFKC", text).casefold())[:MAX_WORDS]
