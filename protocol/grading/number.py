"""Extract the number that an answer states, for LongBench's counting and passage retrieval."""

import re

from protocol.grading.said import stated

__all__ = ["number"]

NUMBER = re.compile(r"[0-9]+")
FIRST = re.compile(r"[^\w]*(?:Paragraph\s+)?([0-9]+)(?![0-9]|\.[0-9])", re.IGNORECASE)
PARAGRAPH = re.compile(r"\bparagraph\s+([0-9]+)", re.IGNORECASE)


def number(answer: str) -> str | None:
    """Return the first number after the last "answer is", "count:" and the like; else the number at the
    beginning, since LongBench's prompts end with "The answer is:"; else the last "Paragraph 7"; else the last
    number.

    Without leading zeros; None in a text without a number.
    """
    after = stated(answer)
    if after is not None and (found := NUMBER.search(after)):
        return _bare(found.group())
    if first := FIRST.match(answer):
        return _bare(first.group(1))
    last = PARAGRAPH.findall(answer) or NUMBER.findall(answer)
    return _bare(last[-1]) if last else None


def _bare(digits: str) -> str:
    return digits.lstrip("0") or "0"
