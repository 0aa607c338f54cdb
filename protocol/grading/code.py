"""Similarity of the next lines of code, as LongBench scores completion."""

import re

from protocol.grading import common_subsequence
from protocol.grading.answer_text import excerpt, extract_answer
from protocol.grading.grade import Grade, make_score

MAX_CHARACTERS = 2_000  # characters compared, from the beginning of the code
FENCE = re.compile(r"^[ \t]*(?:```|~~~)[^\n]*$", re.MULTILINE)
# A comment line. "#include" is code, "#!" and "# " are not.
COMMENT = re.compile(r"\s*(?:#(?:[\s#!]|\Z)|//)")


def grade(gold: str, text: str) -> Grade:
    """Return 1 - (insertions and deletions of characters) / (characters of both), over as many lines as gold
    has.

    The first lines of code are compared: of the first fenced block if there is one; empty lines and, unless
    gold begins with one, comment lines are skipped; white space around a line is ignored. Departs from
    LongBench's `code_sim_score`, which skips every line that contains "#", "//" or a back quote, as code may,
    takes the sentence before a fence for code, and scores by whichever of two measures `fuzzywuzzy` finds
    installed; this is the one of python-Levenshtein.
    """
    gold_lines = code_lines(gold, with_comments=True)
    if not gold_lines:
        return Grade("error", None, "the gold answer has no line of code")
    answer_lines = code_lines(extract_answer(text), with_comments=COMMENT.match(gold_lines[0]) is not None)[
        : len(gold_lines)
    ]
    answer, gold_text = "\n".join(answer_lines)[:MAX_CHARACTERS], "\n".join(gold_lines)[:MAX_CHARACTERS]
    if not answer:
        return make_score(0, None, "the answer has no line of code")
    score = common_subsequence.similarity(gold_text, answer)
    return make_score(score, excerpt(answer), "" if score == 1 else "not the gold line of code")


def code_lines(text: str, with_comments: bool) -> list[str]:
    if opening := FENCE.search(text):
        block = text[opening.end() :]
        closing = FENCE.search(block)
        text = block[: closing.start()] if closing else block
    stripped_lines = (line.strip() for line in text.splitlines())
    return [line for line in stripped_lines if line and (with_comments or not COMMENT.match(line))]
