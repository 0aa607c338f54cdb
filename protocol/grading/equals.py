"""Equality of a short answer in words or numbers, after normalization."""

from protocol.grading.answer_text import ARTICLES, excerpt, extract_answer
from protocol.grading.grade import Grade
from protocol.grading.short_answer import NO_GOLD, NO_WORD, split_answer


def grade(gold: str, text: str) -> Grade:
    """Correct if and only if the first line of the answer that has a word or a number is the gold, both normalized.

    A gold answer without words gives "error", a text without any "no answer".
    """
    if not (wanted := normalize_answer(gold)):
        return Grade("error", None, NO_GOLD)
    lines = (line.strip() for line in extract_answer(text).splitlines())
    if (answer := next(filter(split_answer, lines), None)) is None:
        return Grade("no answer", None, NO_WORD)
    if normalize_answer(answer) == wanted:
        return Grade("correct", excerpt(answer), "")
    return Grade("wrong", excerpt(answer), "it is not the gold answer")


def normalize_answer(text: str) -> tuple[str, ...]:
    """Return the words and numbers of a text as `split_answer` does, without an article before the first one."""
    words = split_answer(text)
    return words[1:] if len(words) > 1 and words[0] in ARTICLES else words
