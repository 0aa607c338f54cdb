"""Protocols that are asked for at every event of every lane."""

from __future__ import annotations

from typing import Any, Protocol
from weakref import WeakKeyDictionary

__all__ = ["Kind"]

ANSWERS: WeakKeyDictionary[type, dict[type, bool]] = WeakKeyDictionary()
"""By class of the value and kind: a cache."""


class Kind(type(Protocol)):  # type: ignore[misc]  # typing does not export its class
    """Metaclass of a runtime protocol that is asked of each class once, by its first value: values of a class
    have the same attributes. Before Python 3.12 `isinstance` collects what the protocol asks for every time,
    for a sixth of what decoding takes.
    """

    def __instancecheck__(cls, instance: Any) -> bool:
        answers = ANSWERS.setdefault(type(instance), {})
        if cls not in answers:
            answers[cls] = super().__instancecheck__(instance)
        return answers[cls]
