"""Occurrence of a short answer in words or numbers, after normalization."""

import re

from protocol.grading import equals
from protocol.grading.answer_text import ARTICLES, excerpt, extract_answer
from protocol.grading.grade import Grade
from protocol.grading.short_answer import split_answer

VERBS = "is|was|seems|looks|fits|works|remains|because|since|as|and|but|or"  # a letter, and no word, stands before them
A_OR_I = re.compile(rf"\b(?:[AI](?= +(?!(?:{VERBS})\b)[a-z])|[ai](?= +(?!(?:{VERBS})\b)[^\W\d_]))")


def grade(gold: str, text: str) -> Grade:
    """Correct if and only if the words and numbers of the gold occur in the answer next to each other, each whole.

    Both are split and folded as `split_answer` says: "Al" does not occur in "Also", nor 3 in 3.5, 13, -3 or 3,000.
    An article before several words of the gold may be missing; before a single one ("The Who") it has to be there,
    unless the answer is that word alone; the article "a" and the pronoun "I" are not the letters A and I.

    A gold answer without words gives "error", a text without any "no answer".
    """
    whole = equals.grade(gold, text)
    if whole.status != "wrong":
        return whole
    answer = extract_answer(text)
    wanted = split_answer(gold)
    words = split_answer(A_OR_I.sub(" ", answer) if wanted in (("a",), ("i",)) else answer)
    if len(wanted) == 2 and wanted[0] in ARTICLES:
        is_found = any(word == wanted[1] and words[at] in ARTICLES for at, word in enumerate(words[1:]))
    else:
        wanted = equals.normalize_answer(gold)
        is_found = any(words[at : at + len(wanted)] == wanted for at in range(len(words) - len(wanted) + 1))
    if is_found:
        return Grade("correct", excerpt(answer), "")
    return Grade("wrong", excerpt(answer), "the gold answer does not occur in it")
