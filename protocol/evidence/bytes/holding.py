"""Declarations compiled to one question: is this value what was declared? Why not, `fields.fault` says.

A shard has a hundred thousand values, and asking the question alone takes a fifth of the time.
"""

import re
from collections.abc import Callable
from typing import Any

from protocol.evidence.bytes import fields
from protocol.evidence.bytes.fields import Choice, Kind, ListOf, OrNull, Table, Text, Whole

__all__ = ["test_of"]

Test = Callable[[Any], bool]


def test_of(kind: Kind) -> Test:
    """True for exactly the values, as json reads them, of which `fields.fault` has nothing to say."""
    match kind:
        case Table(others=False) if all(field.when is None for field in kind.fields.values()):
            return _table(kind)
        case ListOf():
            return _list(kind)
        case OrNull():
            inner = test_of(kind.kind)
            return lambda value: value is None or inner(value)
        case Text(pattern=""):
            return lambda value: type(value) is str
        case Text():
            matches = re.compile(kind.pattern).fullmatch
            return lambda value: type(value) is str and matches(value) is not None
        case Whole(most=None):
            least = kind.least
            return lambda value: type(value) is int and value >= least
        case Choice():
            options = frozenset(kind.options)
            return lambda value: type(value) is str and value in options
    return lambda value: fields.fault(kind, value) is None


def _table(kind: Table) -> Test:
    tests = {name: test_of(field.kind) for name, field in kind.fields.items()}
    needed, known = frozenset(kind.needed), frozenset(tests)

    def holds(value: Any) -> bool:
        if type(value) is not dict or not needed <= value.keys() <= known:
            return False
        return all(tests[name](one) for name, one in value.items())

    return holds


def _list(kind: ListOf) -> Test:
    each, least, most = test_of(kind.each), kind.least, kind.most

    def holds(value: Any) -> bool:
        if type(value) is not list or len(value) < least or (most is not None and len(value) > most):
            return False
        return all(map(each, value))

    return holds
