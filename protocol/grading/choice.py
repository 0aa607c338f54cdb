"""The choice that an answer states: a letter, or the name of a class."""

import re
from collections.abc import Sequence

from protocol.grading import boxed
from protocol.grading.grade import Grade
from protocol.grading.said import plain, said, shown, stated

__all__ = ["grade", "last_class", "letter"]

ALONE = re.compile(r"[\s(\[*]*([A-Za-z])[\s)\].:,*]*")  # the whole part
HEAD = re.compile(r"[\s(\[*]*([A-Z])(?:[)\].:,*]|\s*\Z)")  # "B) since", "(B)", "B."
# A single letter. "A" before a lower-case word is an article, "I" a pronoun, and "not B" is no choice.
NOT = "".join(rf"(?<!{word} )(?<!{word} \()" for word in (r"\bnot", "n't", r"\bnor", r"\b[Nn]either"))
LETTER = re.compile(rf"(?<![\w']){NOT}([A-Z])(?![\w'])(?!(?<=[AI]) +[a-z])")
# Several letters, none of which is chosen: "B or C", "A, B, C and D". Not "B and A is wrong".
ONE = r"\(?[A-Z]\)?(?![\w'])"
SEVERAL = re.compile(
    rf"(?<![\w']){ONE}(?:\s*,\s*{ONE})*\s*,?\s*(?:(?:or|nor|/)\s*{ONE}|(?:and|&)\s*{ONE}(?!\s*[a-z]))"
)
LETTERS = re.compile(r"[\W\d_]*[A-Z](?:[\W\d_]+[A-Z])+[\W\d_]*")


def grade(gold: str, text: str) -> Grade:
    """Correct if and only if the last stated choice is `gold`.

    A gold answer of one letter, A to Z or a to z, is compared with `extract_letter`; another one is compared,
    after normalization, with the boxed text, else with what follows "answer is" and the like, else with the
    last line.
    """
    if not plain(gold):
        return Grade("error", None, "the gold answer is empty")
    answer = said(text)
    if not answer:
        return Grade("no answer", None, "the text says nothing")
    if re.fullmatch(r"[A-Za-z]", gold.strip()):
        found = letter(answer)
        if found is None:
            return Grade("no answer", None, "no letter is stated as the choice")
        right = found == gold.strip().upper()
    else:
        found = _named(answer)
        right = plain(found) == plain(gold)
    return Grade("correct" if right else "wrong", shown(found), "" if right else "another choice is stated")


def letter(answer: str) -> str | None:
    r"""Return the letter in the last box, else the first after the last "answer is" and the like, else that
    of the last line that is a letter or begins with one ("B) since ..."), else the last single letter.

    It has to be a capital, or the only content of the text, of the box or after "answer is". None if several
    are named ("B or C", or letters and nothing else).
    """
    if _lists(answer):
        return None
    for part in (boxed.last(answer), stated(answer)):
        if part is None:
            continue
        line = _line(part)
        if SEVERAL.match(line.lstrip()) or _lists(line):
            return None
        if first := ALONE.fullmatch(line) or HEAD.match(part) or LETTER.search(line):
            return first.group(1).upper()
    if alone := ALONE.fullmatch(answer):
        return alone.group(1).upper()
    if headed := [head for line in answer.splitlines() if (head := HEAD.match(line))]:
        return headed[-1].group(1)
    places = {one.start(1): one.group(1) for one in LETTER.finditer(answer)}
    if any(one.start() <= max(places, default=-1) < one.end() for one in SEVERAL.finditer(answer)):
        return None
    return places[max(places)] if places else None


def _lists(text: str) -> bool:
    """Whether the text consists of several letters and nothing else."""
    return LETTERS.fullmatch(text) is not None and len(set(re.findall("[A-Z]", text))) > 1


def last_class(answer: str, classes: Sequence[str]) -> str | None:
    """Return the class whose name occurs last in the text; of nested names the longest; None if there is
    none.

    If the text states an answer ("answer is" and the like), the sentence after it is searched first.
    """
    by_name = {plain(name): name for name in classes if plain(name)}
    if not by_name:
        return None
    longest_first = sorted(by_name, key=len, reverse=True)
    name = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, longest_first))})(?!\w)")
    for part in (_line(stated(answer) or ""), answer):
        if found := name.findall(plain(part)):
            return by_name[found[-1]]
    return None


def _named(answer: str) -> str:
    box, after = boxed.last(answer), stated(answer)
    if box is not None:
        return box
    return _line(after) if after is not None and _line(after) else answer.splitlines()[-1]


def _line(text: str) -> str:
    """Return the first sentence of the first non-empty line."""
    line = next((line for line in text.splitlines() if line.strip()), "")
    return re.split(r"[.!?](?:\s|\Z)", line, maxsplit=1)[0].strip(" *")
