"""Facts about the tokenizers of models whose tokenizer is in the bundle: how long a text of so many tokens
may be, and which tokens end the thinking.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from protocol.evidence.registration import Registration
from protocol.formats.refusals import Tampered

FOLDER = "protocol/embedded"
THINK = "</think>"
BOXED = "\\boxed"
SPACES = "\u0120\u2581 "  # as byte-level and SentencePiece vocabularies write a space, and a plain space


class Vocabulary(NamedTuple):
    """The facts of one tokenizer. is_word_level: each token is a word, and words are separated by one space.
    longest_token: characters of the longest token. answer_marks: the tokens that end the thinking.
    """

    is_word_level: bool
    longest_token: int
    answer_marks: frozenset[str] = frozenset()

    def count_thinking_tokens(self, text: str) -> int | None:
        """Return how many words a word-level text has up to and including the first mark; None without a mark."""
        words = enumerate(text.split(" "), 1)
        return next((position for position, word in words if word in self.answer_marks), None)


def find_answer_marks(tokens: Iterable[str]) -> frozenset[str]:
    """Return the tokens of a vocabulary that end the thinking: `</think>` if it is one of them, else those
    that begin with `\\boxed`, with or without a space before it. A model without thinking tags boxes its
    answer where its reasoning ends.
    """
    token_set = frozenset(tokens)
    if THINK in token_set:
        return frozenset({THINK})
    return frozenset(piece for piece in token_set if piece.lstrip(SPACES).startswith(BOXED))


def read_vocabularies(study: Registration) -> dict[str, Vocabulary]:
    """Return the vocabulary of each model whose locked tokenizer is in the bundle. A damaged bundle gives
    what was read before the damage; the check of the bundle reports it.
    """
    vocabularies = {}
    try:
        content = study.lock.content
        names = {model: f"{FOLDER}/{model}/tokenizer.json" for model in content["weights"]}
        bundled_files = study.source_files
        for model, name in names.items():
            data, locked_digest = bundled_files.get(name), content["weights"][model].get("tokenizer.json")
            if data is not None and hashlib.sha256(data).hexdigest() == locked_digest:
                vocabularies[model] = parse_tokenizer(json.loads(data))
    except (Tampered, KeyError, TypeError, ValueError, AttributeError, RuntimeError):
        return vocabularies
    return vocabularies


def parse_tokenizer(tokenizer: Mapping[str, Any]) -> Vocabulary:
    """Parse a tokenizer.json. Raises KeyError or TypeError for any other document."""
    model, added_tokens = tokenizer["model"], tokenizer.get("added_tokens", ())
    vocabulary = model["vocab"]
    pieces = [*(entry[0] if isinstance(entry, list) else entry for entry in vocabulary)]
    pieces += [entry["content"] for entry in added_tokens]
    is_word_level = model["type"] == "WordLevel" and tokenizer.get("decoder") is None
    is_word_level = is_word_level and not any(" " in piece for piece in pieces)
    return Vocabulary(is_word_level, max(map(len, pieces)), find_answer_marks(pieces))
