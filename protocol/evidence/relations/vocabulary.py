"""Facts about the tokenizers of models whose tokenizer is in the bundle: how long a text of so many tokens
may be, and which tokens end the thinking.
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
SPACES = "\u0120\u2581 "  # as byte-level and SentencePiece vocabularies write a space, and a plain space


class Words(NamedTuple):
    """The facts of one tokenizer. is_word_level: each token is a word, and words are separated by one space.
    longest_token: characters of the longest token. answer_marks: the tokens that end the thinking.
    """

    apart: bool
    longest: int
    marks: frozenset[str] = frozenset()

    def thought(self, text: str) -> int | None:
        """Return how many words of a word-level text there are up to and including the first mark; None
        without a mark.
        """
        said = enumerate(text.split(" "), 1)
        return next((place for place, word in said if word in self.marks), None)


def answer_marks(vocabulary: Iterable[str]) -> frozenset[str]:
    """Return the tokens of a vocabulary that end the thinking: `</think>` if it is one of them, else those
    that begin with `\\boxed`, with or without a space before it. A model without thinking tags boxes its
    answer where its reasoning ends.
    """
    pieces = frozenset(vocabulary)
    if THINK in pieces:
        return frozenset({THINK})
    return frozenset(piece for piece in pieces if piece.lstrip(SPACES).startswith(BOXED))


def of_bundle(archive: Path, content: Mapping[str, Any]) -> dict[str, Words]:
    """Return the vocabulary of each model whose locked tokenizer is in the bundle. A damaged bundle gives
    what was read before the damage; the check of the bundle reports it.
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
    """Parse a tokenizer.json. Raises KeyError or TypeError for any other document."""
    model, added = tokenizer["model"], tokenizer.get("added_tokens", ())
    vocabulary = model["vocab"]
    pieces = [*(one[0] if isinstance(one, list) else one for one in vocabulary)]
    pieces += [one["content"] for one in added]
    apart = model["type"] == "WordLevel" and tokenizer.get("decoder") is None
    apart = apart and not any(" " in piece for piece in pieces)
    return Words(apart, max(map(len, pieces)), answer_marks(pieces))
