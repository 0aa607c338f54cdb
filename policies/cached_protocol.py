"""A metaclass for runtime protocols that caches isinstance checks, which run at every eviction step."""

from __future__ import annotations

from typing import Any, Protocol
from weakref import WeakKeyDictionary

ANSWERS: WeakKeyDictionary[type, dict[type, bool]] = WeakKeyDictionary()
"""Cached results by class of the value and protocol."""


class CachedProtocol(type(Protocol)):  # type: ignore[misc]  # typing does not export its class
    """Metaclass of a runtime protocol that checks each class once, by its first instance: instances of a
    class have the same attributes. Before Python 3.12, `isinstance` collects the protocol members on every
    call, which takes a sixth of the decoding time.
    """

    def __instancecheck__(cls, instance: Any) -> bool:
        answers = ANSWERS.setdefault(type(instance), {})
        if cls not in answers:
            answers[cls] = super().__instancecheck__(instance)
        return answers[cls]
