"""The class of a decoded token: number, word, punctuation, space, or special."""

import re

from protocol.instruments.anatomy.analysis.traces import Trace

CLASSES = ("number", "word", "punctuation", "space", "special")
SPECIAL = re.compile("<[|\uff5c]?[^<>\\s]+[|\uff5c]?>|\\[[A-Z]{3,}\\]")  # <|im_end|>, </s>, <think>, [PAD]


def class_of(piece: str) -> str:
    """Return the class of a piece. An empty piece or a marker is special; white space alone is space; any
    digit makes it a number, else any letter a word; else it is punctuation.
    """
    if not piece or SPECIAL.fullmatch(piece.strip()):
        return "special"
    if piece.isspace():
        return "space"
    if any(character.isdigit() for character in piece):
        return "number"
    return "word" if any(character.isalpha() for character in piece) else "punctuation"


def classes_in_span(trace: Trace) -> list[str]:
    """Return the class of each token that may be occluded."""
    return [class_of(piece) for piece in trace.pieces[slice(*trace.span)]]
