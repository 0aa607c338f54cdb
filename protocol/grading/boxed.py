r"""The last \boxed{...} of a text, compared with the gold answer as a string."""

import itertools
import re
import unicodedata

from protocol.grading.grade import Grade

LONGEST = 20_000  # characters read from the end of the text, where the answer is
OPENING = re.compile(r"\\boxed\s*\{")
BRACE = re.compile(r"\\.|[{}]", re.DOTALL)  # an escaped brace is a character of the answer


def grade(gold: str, text: str) -> Grade:
    """Correct if and only if the last box contains `gold`, compared after normalization and without outer
    spaces.

    A text without a box, or whose last box is not closed (it was truncated) or is empty, gives "no answer",
    an empty gold "error".
    """
    if not normalize(gold):
        return Grade("error", None, "the gold answer is empty")
    content = last_box(text[-LONGEST:])
    if content is None:
        truncated = "" if len(text) <= LONGEST else f" in the last {LONGEST} of {len(text)} characters"
        return Grade("no answer", None, rf"no \boxed{{...}} that is closed stands last{truncated}")
    answer = normalize(content)
    if not answer:
        return Grade("no answer", None, "the last box is empty")
    if answer == normalize(gold):
        return Grade("correct", answer, "")
    return Grade("wrong", answer, "the boxed answer is not the gold answer")


def last_box(text: str) -> str | None:
    r"""Return the content of the last \boxed{...}, by matching braces; None without one, or if it is not
    closed.
    """
    start = max((opening.end() for opening in OPENING.finditer(text)), default=None)
    if start is None:
        return None
    depth = 1
    for brace in BRACE.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(brace.group(), 0)
        if depth == 0:
            return text[start : brace.start()]
    return None


def normalize(text: str) -> str:
    """Normalize a text: compatible characters unified (NFKC), invisible ones removed, outer white space
    stripped.

    Superscript, subscript and fraction characters become LaTeX first, since NFKC makes 52 of "5²" and 21/2 of
    "2½".
    """
    parts = []
    for form, run in itertools.groupby(text, key=_character_form):
        letters = unicodedata.normalize("NFKC", "".join(run))
        parts.append(FORMS.get(form, "{}").format(letters))
    fractions = SLASHED.sub(r"\\frac{\1}{\2}", "".join(parts))
    return "".join(c for c in fractions if unicodedata.category(c) != "Cf").strip()


APART = "\N{ZERO WIDTH SPACE}"  # invisible, so removed in the end
SLASHED = re.compile(f"([0-9]+)\N{FRACTION SLASH}{APART}?([0-9]+)")
FORMS = {"<super>": "^{{{}}}", "<sub>": "_{{{}}}", "<fraction>": f"{APART}{{}}{APART}"}


def _character_form(character: str) -> str:
    return unicodedata.decomposition(character).partition(" ")[0]
