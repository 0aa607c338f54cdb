"""Which of many dicts changed, without a look at their values.

CPython up to 3.13 numbers every change of every dict (PEP 509) in the word that follows its length. Where an
interpreter does not, names and values are compared one by one.
"""

import gc
import operator
import struct
import sys
from collections.abc import Mapping, Sequence
from ctypes import c_uint64
from typing import Any

import numpy as np

WORD = 8
OFFSET = struct.calcsize("nPn")  # count of references, type, number of entries


def _count_changes() -> bool:
    """Return whether this interpreter numbers changes: each kind of one is tried."""
    if sys.implementation.name != "cpython":  # elsewhere id() is no address
        return False
    watched: dict[str, int] = {}
    counter = c_uint64.from_address(id(watched) + OFFSET)

    class Owner:
        pass

    owner = c_uint64.from_address(id(_get_dict(vars(Owner))) + OFFSET)
    versions = [counter.value]
    for change in (
        lambda: watched.__setitem__("a", 1),
        lambda: watched.__setitem__("a", 2),
        lambda: watched.update(a=3, b=4),
        lambda: watched.setdefault("c", 5),
        lambda: watched.pop("a"),
        lambda: watched.__delitem__("b"),
        lambda: watched.popitem(),
        lambda: watched.update({"d": 6}),
        lambda: watched.clear(),
    ):
        change()
        versions.append(counter.value)
    of_class = [owner.value]
    for number in range(2):
        Owner.kept = number  # type: ignore[attr-defined]
        of_class.append(owner.value)
    is_numbered = len({*versions, *of_class}) == len(versions) + len(of_class)
    watched.get("a")
    return is_numbered and counter.value == versions[-1]


def _get_dict(namespace: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the dict behind the view that a class gives of its names, or the dict itself."""
    return namespace if type(namespace) is dict else next(iter(gc.get_referents(namespace)))


class DictVersions:
    """The versions of these dicts, or of those behind the names of classes, when they were last accepted."""

    def __init__(self, namespaces: Sequence[Mapping[str, Any]]) -> None:
        self._dicts = dicts = [_get_dict(each) for each in namespaces]
        self._is_counted = IS_COUNTED and len(dicts) > 0
        if self._is_counted:  # an array from the first to the last of the counters, of which no other word is read
            places = np.array([id(each) + OFFSET for each in dicts], dtype=np.int64)
            first, words = int(places.min()), int(places.max() - places.min()) // WORD + 1
            self._memory = np.ctypeslib.as_array((c_uint64 * words).from_address(first))
            self._words = (places - first) // WORD
            self._versions = self._memory[self._words]
        else:
            self._entries = [_list_entries(each) for each in dicts]

    def find_changed(self) -> list[int]:
        """Return the numbers of the dicts in which another value stands, or stood."""
        if self._is_counted:
            changed: list[int] = np.flatnonzero(self._memory[self._words] != self._versions).tolist()
            return changed
        return [number for number, each in enumerate(self._dicts) if not _is_same(each, *self._entries[number])]

    def accept(self, number: int) -> None:
        """Compare the dict of this number from now on with what it is now."""
        if self._is_counted:
            self._versions[number] = self._memory[self._words[number]]
        else:
            self._entries[number] = _list_entries(self._dicts[number])


def _list_entries(now: Mapping[str, Any]) -> tuple[list[str], list[Any]]:
    return [*now], [*now.values()]


def _is_same(now: Mapping[str, Any], names: list[str], values: list[Any]) -> bool:
    """Return whether the very same values stand at the very same names; no class of theirs is asked."""
    return (
        len(now) == len(names) and all(map(operator.is_, now, names)) and all(map(operator.is_, now.values(), values))
    )


IS_COUNTED = _count_changes()
