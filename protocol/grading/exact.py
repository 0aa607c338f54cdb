"""Exact match of a value, as CrystalCache grades its retrieval tasks (section 4.2, appendix B.4)."""

import re

from protocol.grading.grade import Grade

LONGEST = 20_000  # characters read; generated text may have any length
NUMBER = re.compile(r"[0-9]+(?:[.,][0-9]+)*")


def grade(gold: str, text: str) -> Grade:
    """Correct if and only if `gold` occurs in the text, also inside a longer run of digits, as in the paper.

    The answer is the first number of the text, None if there is none. A text without a number gives "no
    answer", an empty gold value "error".
    """
    if not gold:
        return Grade("error", None, "the gold value is empty")
    prefix = text[:LONGEST]
    is_complete = len(text) <= LONGEST
    truncated = "" if is_complete else f"only the first {LONGEST} of {len(text)} characters were read"
    number = NUMBER.search(prefix)
    answer = number.group() if number else None
    if gold in prefix:
        return Grade("correct", answer, truncated)
    if answer is None:
        return Grade("no answer", None, truncated or "the text has no number")
    return Grade("wrong", answer, truncated or "the gold value does not occur in the text")
