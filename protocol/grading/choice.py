"""The choice that an answer states: a letter, or the name of a class."""

import re
from collections.abc import Sequence

from protocol.grading import boxed
from protocol.grading.answer_text import excerpt, extract_answer, normalize, stated_answer
from protocol.grading.grade import Grade

LETTER_ALONE = re.compile(r"[\s(\[*]*([A-Za-z])[\s)\].:,*]*")  # the whole part
LINE_START = re.compile(r"[\s(\[*]*([A-Z])(?:[)\].:,*]|\s*\Z)")  # "B) since", "(B)", "B."
# A single letter. "A" before a lower-case word is an article, "I" a pronoun, and "not B" is no choice.
NOT_NEGATED = "".join(rf"(?<!{word} )(?<!{word} \()" for word in (r"\bnot", "n't", r"\bnor", r"\b[Nn]either"))
NO_ARTICLE = (
    r"(?!(?<=A) +(?!(?:is|was|seems|looks|fits|works|remains|because|since|as|and|but)\b)[a-z])(?!(?<=I) +[a-z])"
)
LETTER = re.compile(rf"(?<![\w']){NOT_NEGATED}([A-Z])(?![\w']){NO_ARTICLE}")
# Several letters, none of which is chosen: "B or C", "A, B, C and D". Not "B and A is wrong".
ONE_LETTER = r"\(?[A-Z]\)?(?![\w'])"
ALTERNATIVES = re.compile(
    rf"(?<![\w']){ONE_LETTER}(?:\s*,\s*{ONE_LETTER})*\s*,?\s*(?:(?:or|nor|/)\s*{ONE_LETTER}|(?:and|&)\s*{ONE_LETTER}(?!\s*[a-z]))"
)
# A letter that the text rejects is no choice: "rather than B", "B is wrong", "A: no", "none of A, B".
LETTERS = rf"(?:(?:option|answer|choice)\s+)?{ONE_LETTER}(?:\s*(?:,|,?\s*(?:and|or|nor)|/)\s*{ONE_LETTER})*"
REJECTING = (
    r"(?:rather|better|other|more \w+) than|instead of|as opposed to|unlike|over|never|none of|neither|not|\w+n't|"
    r"cannot be|(?:rule[sd]?|ruling) out|eliminat(?:e[sd]?|ing)|exclud(?:e[sd]?|ing)"
)
REJECTED_AS = (
    r"(?:\s+(?:is|was|would be|seems|looks)\s+(?:\w+ly\s+|also\s+)?"
    r"(?:wrong|incorrect|false|not|too|impossible|out)|\s+(?:\w+n't|does not|do not|cannot|fails?)|"
    r"\s*[:)]\s*(?:no|wrong|incorrect|false))\b"
)
REJECTED = re.compile(rf"(?<![\w'])(?:(?i:{REJECTING})\s+{LETTERS}|{ONE_LETTER}(?i:{REJECTED_AS}))")
LETTERS_ONLY = re.compile(r"[\W\d_]*[A-Z](?:[\W\d_]+[A-Z])+[\W\d_]*")


def grade(gold: str, text: str) -> Grade:
    """Correct if and only if the last stated choice is `gold`.

    A gold answer of one letter, A to Z or a to z, is compared with `extract_letter`; another one is compared,
    after normalization, with the boxed text, else with what follows "answer is" and the like, else with the
    last line.
    """
    if not normalize(gold):
        return Grade("error", None, "the gold answer is empty")
    answer = extract_answer(text)
    if not answer:
        return Grade("no answer", None, "the text says nothing")
    if re.fullmatch(r"[A-Za-z]", gold.strip()):
        choice = extract_letter(answer)
        if choice is None:
            return Grade("no answer", None, "no letter is stated as the choice")
        is_correct = choice == gold.strip().upper()
    else:
        choice = _stated_name(answer)
        is_correct = normalize(choice) == normalize(gold)
    return Grade(
        "correct" if is_correct else "wrong", excerpt(choice), "" if is_correct else "another choice is stated"
    )


def extract_letter(answer: str) -> str | None:
    r"""Return the letter in the last box, else the first after the last "answer is" and the like, else that
    of the last line that is a letter or begins with one ("B) since ..."), else the last single letter.

    It has to be a capital, or the only content of the text, of the box or after "answer is". A letter that the text
    rejects ("rather than B", "B is wrong") is not read. None if several are named ("B or C", or letters and nothing
    else).
    """
    answer = REJECTED.sub(" ", answer.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'"))
    if _is_letter_list(answer):
        return None
    for part in (boxed.last_box(answer), stated_answer(answer)):
        if part is None:
            continue
        line = _first_sentence(part)
        if ALTERNATIVES.match(line.lstrip()) or _is_letter_list(line):
            return None
        if match_in_part := LETTER_ALONE.fullmatch(line) or LINE_START.match(part) or LETTER.search(line):
            return match_in_part.group(1).upper()
    if whole_letter := LETTER_ALONE.fullmatch(answer):
        return whole_letter.group(1).upper()
    if line_starts := [head for line in answer.splitlines() if (head := LINE_START.match(line))]:
        return line_starts[-1].group(1)
    letters_by_position = {match.start(1): match.group(1) for match in LETTER.finditer(answer)}
    if any(
        match.start() <= max(letters_by_position, default=-1) < match.end() for match in ALTERNATIVES.finditer(answer)
    ):
        return None
    return letters_by_position[max(letters_by_position)] if letters_by_position else None


def _is_letter_list(text: str) -> bool:
    """Whether the text consists of several letters and nothing else."""
    return LETTERS_ONLY.fullmatch(text) is not None and len(set(re.findall("[A-Z]", text))) > 1


def find_last_class(answer: str, classes: Sequence[str]) -> str | None:
    """Return the class whose name occurs last in the text; of nested names the longest; None if there is
    none.

    If the text states an answer ("answer is" and the like), the sentence after it is searched first.
    """
    by_name = {normalize(name): name for name in classes if normalize(name)}
    if not by_name:
        return None
    longest_first = sorted(by_name, key=len, reverse=True)
    name = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, longest_first))})(?!\w)")
    for part in (_first_sentence(stated_answer(answer) or ""), answer):
        if matches := name.findall(normalize(part)):
            return by_name[matches[-1]]
    return None


def _stated_name(answer: str) -> str:
    box, statement = boxed.last_box(answer), stated_answer(answer)
    if box is not None:
        return box
    return (
        _first_sentence(statement) if statement is not None and _first_sentence(statement) else answer.splitlines()[-1]
    )


def _first_sentence(text: str) -> str:
    """Return the first sentence of the first non-empty line."""
    line = next((line for line in text.splitlines() if line.strip()), "")
    return re.split(r"[.!?](?:\s|\Z)", line, maxsplit=1)[0].strip(" *")
