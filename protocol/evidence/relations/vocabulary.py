"""What a tokenizer says of the length of a text, of models whose tokenizer lies in the bundle."""

import hashlib
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Words", "of_bundle"]

LARGEST = 2**25  # bytes of a tokenizer that is read
FOLDER = "protocol/embedded"


class Words(NamedTuple):
    """apart: a token is a word, and words stand a space apart. longest: characters of the longest token."""

    apart: bool
    longest: int


def of_bundle(bundle: Path, content: Mapping[str, Any]) -> dict[str, Words]:
    """By model, of those whose locked tokenizer the bundle holds; a bundle that is damaged holds none, for
    its own check to say.
    """
    found = {}
    try:
        with zipfile.ZipFile(bundle) as archive:
            for model, weights in content["weights"].items():
                name = f"{FOLDER}/{model}/tokenizer.json"
                if name not in archive.namelist() or archive.getinfo(name).file_size > LARGEST:
                    continue
                data = archive.read(name)
                if hashlib.sha256(data).hexdigest() == weights.get("tokenizer.json"):
                    found[model] = words_of(json.loads(data))
    except (OSError, KeyError, TypeError, ValueError, AttributeError, RuntimeError, zipfile.BadZipFile):
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
