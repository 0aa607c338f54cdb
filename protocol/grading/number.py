"""Extract the number that an answer states, for LongBench's counting and passage retrieval."""

import re

from protocol.grading.answer_text import stated_answer

NUMBER = re.compile(r"[0-9]+")
FIRST = re.compile(r"[^\w]*(?:Paragraph\s+)?([0-9]+)(?![0-9]|\.[0-9])", re.IGNORECASE)
PARAGRAPH = re.compile(r"\bparagraph\s+([0-9]+)", re.IGNORECASE)


def extract_number(answer: str) -> str | None:
    """Return the first number after the last "answer is", "count:" and the like; else the number at the
    beginning, since LongBench's prompts end with "The answer is:"; else the last "Paragraph 7"; else the last
    number.

    Without leading zeros; None in a text without a number.
    """
    statement = stated_answer(answer)
    if statement is not None and (match := NUMBER.search(statement)):
        return _strip_zeros(match.group())
    if leading := FIRST.match(answer):
        return _strip_zeros(leading.group(1))
    numbers = PARAGRAPH.findall(answer) or NUMBER.findall(answer)
    return _strip_zeros(numbers[-1]) if numbers else None


def _strip_zeros(digits: str) -> str:
    return digits.lstrip("0") or "0"
