"""Occurrence of a short answer in words or numbers, after normalization."""

import re
import unicodedata

from protocol.grading.answer_text import excerpt, extract_answer
from protocol.grading.equals import NO_GOLD, NO_WORD, normalize_answer
from protocol.grading.grade import Grade

__all__ = ["grade"]

# Scripts that write no space between words, or append particles to them: a word may end anywhere in them.
UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")


def grade(gold: str, text: str) -> Grade:
    """Correct if and only if the gold occurs in the answer, both normalized as by the grader `equals`, as whole
    words and numbers: "Al" does not occur in "Also", nor 3 in 3.5, 13 or -3.

    A gold answer without words gives "error", a text without any "no answer".
    """
    if not (wanted := normalize_answer(gold)):
        return Grade("error", None, NO_GOLD)
    answer = extract_answer(text)
    if not (normalized := normalize_answer(answer)):
        return Grade("no answer", None, NO_WORD)
    if _whole_words(wanted).search(normalized):
        return Grade("correct", excerpt(answer), "")
    return Grade("wrong", excerpt(answer), "the gold answer does not occur in it")


def _whole_words(wanted: str) -> re.Pattern[str]:
    first, last = wanted[0], wanted[-1]
    left = ("" if _is_unspaced(first) else r"(?<!\w)") + (r"(?<![0-9][.,/])(?<![-+.])" if first.isdigit() else "")
    right = ("" if _is_unspaced(last) else r"(?![\w+#])") + (r"(?![.,/][0-9])" if last.isdigit() else "")
    return re.compile(left + re.escape(wanted) + right)


def _is_unspaced(character: str) -> bool:
    return unicodedata.name(character, "").startswith(UNSPACED)
