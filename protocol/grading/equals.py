"""Equality of a short answer in words or numbers, after normalization."""

import re
import unicodedata

from protocol.grading.answer_text import ARTICLES, excerpt, extract_answer
from protocol.grading.grade import Grade

__all__ = ["NO_GOLD", "NO_WORD", "grade", "normalize_answer"]

NO_GOLD, NO_WORD = "the gold answer has no word and no number", "the text has no word and no number"
MARKS = ".,;:!?\"'()[]{}*_`\u201c\u201d\u2018\u2019\u00ab\u00bb\u2026\u3002\u3001"  # around a word
THOUSANDS = re.compile(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))")
LEADING_POINT = re.compile(r"(?:^|[^.])\.$")


def grade(gold: str, text: str) -> Grade:
    """Correct if and only if the first line of the answer that has a word or a number is the gold, both normalized.

    A gold answer without words gives "error", a text without any "no answer".
    """
    if not (wanted := normalize_answer(gold)):
        return Grade("error", None, NO_GOLD)
    lines = (line.strip() for line in extract_answer(text).splitlines())
    if (answer := next(filter(normalize_answer, lines), None)) is None:
        return Grade("no answer", None, NO_WORD)
    if normalize_answer(answer) == wanted:
        return Grade("correct", excerpt(answer), "")
    return Grade("wrong", excerpt(answer), "it is not the gold answer")


def normalize_answer(text: str) -> str:
    """Return a text (NFKC) in lower case, with single spaces, without thousands separators, marks around a word, and
    an article before the first one. What is inside a word and signs stay: 3.5, .5, -3, C++, and/or.
    """
    folded = unicodedata.normalize("NFKC", text).casefold().replace("\N{MINUS SIGN}", "-")
    words = [_strip_marks(word) for word in THOUSANDS.sub("", folded).split()]
    words = [word for word in words if any(map(str.isalnum, word))]
    return " ".join(words[1:] if len(words) > 1 and words[0] in ARTICLES else words)


def _strip_marks(word: str) -> str:
    stripped = word.strip(MARKS)
    is_fraction = stripped[:1].isdigit() and LEADING_POINT.search(word[: word.index(stripped)])
    return f".{stripped}" if is_fraction else stripped
