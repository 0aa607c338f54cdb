"""ROUGE-L of an answer: F1 of the longest common subsequence of words (Lin 2004, section 3.1)."""

import re
import unicodedata

from protocol.grading import common_subsequence
from protocol.grading.answer_text import excerpt, extract_answer
from protocol.grading.grade import Grade, make_score

__all__ = ["MAX_WORDS", "grade", "split_words"]

MAX_WORDS = 4_000  # words compared, from the beginning of an answer
WORD = re.compile(r"\w+")


def grade(gold: str, text: str) -> Grade:
    """Return F1 with beta = 1, over the whole text as one sentence, without stemming.

    Departs from the `rouge` package that LongBench calls: that one cuts sentences at full stops, takes the
    union of their subsequences, and for a long text without one exceeds the recursion limit, which LongBench
    counts as 0. A gold answer without words gives "error".
    """
    gold_words, answer = split_words(gold), extract_answer(text)
    if not gold_words:
        return Grade("error", None, "the gold answer has no words")
    answer_words = split_words(answer)
    if not answer_words:
        return make_score(0, excerpt(answer), "the answer has no words")
    score = common_subsequence.similarity(gold_words, answer_words)
    return make_score(score, excerpt(answer), "" if score == 1 else "not its words in their order")


def split_words(text: str) -> list[str]:
    """Return the runs of letters, digits and underscores, case folded, at most 4,000."""
    return WORD.findall(unicodedata.normalize("NFKC", text).casefold())[:MAX_WORDS]
