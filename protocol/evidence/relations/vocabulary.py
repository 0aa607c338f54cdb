"""What a tokenizer says of a text, of models whose tokenizer lies in the bundle: how long it may be, and
which of its tokens end the thinking.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from protocol.evidence.lock import bundle
from protocol.evidence.refusals import Tampered

__all__ = ["BOXED", "THINK", "Words", "answer_marks", "of_bundle"]

FOLDER = "protocol/embedded"
THINK = "</think>"
BOXED = "\\boxed"
SPACES = "\u0120\u2581 "  # as byte-level and SentencePiece vocabularies write one, and as it is


class Words(NamedTuple):
    """apart: a token is a word, and words stand a space apart. longest: characters of the longest token.
    marks: the tokens that end the thinking.
    """

    apart: bool
    longest: int
    marks: frozenset[str] = frozenset()

    def thought(self, text: str) -> int | None:
        """Of words that stand apart: how many there are up to the first mark, with it; None without one."""
        said = enumerate(text.split(" "), 1)
        return next((place for place, word in said if word in self.marks), None)


def answer_marks(vocabulary: Iterable[str]) -> frozenset[str]:
    """The tokens of a vocabulary that end the thinking: `</think>` where it is one of them, else those that
    begin with `\\boxed`, with or without a space before it: a model that has no place to think in boxes its
    answer where its reasoning ends.
    """
    pieces = frozenset(vocabulary)
    if THINK in pieces:
        return frozenset({THINK})
    return frozenset(piece for piece in pieces if piece.lstrip(SPACES).startswith(BOXED))


def of_bundle(archive: Path, content: Mapping[str, Any]) -> dict[str, Words]:
    """By model, of those whose locked tokenizer the bundle holds; a bundle that is damaged holds none, for
    its own check to say.
    """
    found = {}
    try:
        names = {model: f"{FOLDER}/{model}/tokenizer.json" for model in content["weights"]}
        held = bundle.read(archive, names.values())
        for model, name in names.items():
            data, locked = held.get(name), content["weights"][model].get("tokenizer.json")
            if data is not None and hashlib.sha256(data).hexdigest() == locked:
                found[model] = words_of(json.loads(data))
    except (Tampered, KeyError, TypeError, ValueError, AttributeError, RuntimeError):
        return found
    return found


def words_of(tokenizer: Mapping[str, Any]) -> Words:
    """Raises KeyError or TypeError for what is no tokenizer.json."""
    model, added = tokenizer["model"], tokenizer.get("added_tokens", ())
    vocabulary = model["vocab"]
    pieces = [*(one[0] if isinstance(one, list) else one for one in vocabulary)]
    pieces += [one["content"] for one in added]
    apart = model["type"] == "WordLevel" and tokenizer.get("decoder") is None
    apart = apart and not any(" " in piece for piece in pieces)
    return Words(apart, max(map(len, pieces)), answer_marks(pieces))
