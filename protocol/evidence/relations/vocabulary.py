"""What a tokenizer says of the length of a text, of models whose tokenizer lies in the bundle."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from protocol.evidence.lock import bundle
from protocol.evidence.refusals import Tampered

__all__ = ["Words", "of_bundle"]

FOLDER = "protocol/embedded"


class Words(NamedTuple):
    """apart: a token is a word, and words stand a space apart. longest: characters of the longest token."""

    apart: bool
    longest: int


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
    return Words(apart and not any(" " in piece for piece in pieces), max(map(len, pieces)))
