"""Change settings of a policy by their paths, e.g. {"scoring.window": 64}.

Paths are those that `structure` returns. A setting is a number, text, true or false, or a list of these. A
part of the policy (a class) is no setting; `policies.get` can override it completely.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from decimal import Decimal
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from protocol.evidence.mistakes import near
from policies.policy import Policy

__all__ = ["changed", "paths", "with_settings"]

T = TypeVar("T")
MOST = 8  # paths that an error lists


def with_settings(policy: Policy, settings: Mapping[str, Any]) -> Policy:
    """Return the policy with each setting changed at its path.

    A value is converted to the declared type of its field: a float may be given as an int or a Decimal too, a
    tuple as a list. All settings of one part change at once, so that the part validates them together; the
    signals that it then needs are constructed once, so that they validate them too. Raises ValueError, one
    line that begins with the path, for an unknown path (with the nearest one), for a value of another type,
    and for a value that a part or a signal refuses.
    """
    new = changed(policy, settings)
    try:
        _ = new.needs
    except ValueError as refused:
        raise ValueError(f"{', '.join(settings)}: {' '.join(str(refused).split())}") from None
    return new


def changed(value: T, settings: Mapping[str, Any]) -> T:
    """Return any frozen dataclass with some of its settings changed, like `with_settings`."""
    return _changed(value, settings, "", list(paths(value)))


def paths(value: Any, above: str = "") -> Iterator[str]:
    """Yield the path of every setting in a frozen dataclass, in the order of its fields."""
    for name, hint in _fields(value).items():
        inner = getattr(value, name)
        if any(kind is not NoneType and _words(kind) for kind in _kinds(hint)):
            yield f"{above}{name}"
        if is_dataclass(inner):
            yield from paths(inner, f"{above}{name}.")


def _changed(value: T, settings: Mapping[str, Any], above: str, known: list[str]) -> T:
    own = _fields(value)
    new: dict[str, Any] = {}
    deeper: dict[str, dict[str, Any]] = {}
    for path, given in settings.items():
        head, _, rest = path.partition(".")
        if head not in own or (rest and not is_dataclass(getattr(value, head))):
            raise ValueError(f"{above}{path}: {_unknown(f'{above}{path}', known)}")
        if rest:
            deeper.setdefault(head, {})[rest] = given
        else:
            new[head] = _taken(given, own[head], getattr(value, head), f"{above}{head}", known)
    if twice := sorted(new.keys() & deeper.keys()):
        raise ValueError(f"{above}{twice[0]}: is set, and so is what is in it; leave one of both out")
    for head, inner in deeper.items():
        new[head] = _changed(getattr(value, head), inner, f"{above}{head}.", known)
    try:
        return replace(value, **new)  # type: ignore[type-var]  # a dataclass: it has fields
    except (ValueError, TypeError, ArithmeticError) as refused:
        named = ", ".join(f"{above}{path}" for path in settings)
        raise ValueError(f"{named}: {' '.join(str(refused).split())}") from None


def _fields(value: Any) -> dict[str, Any]:
    """Return the declared type of every settable field by name; its value's type if unresolvable."""
    names = [field.name for field in fields(value) if field.init]
    try:
        hints = get_type_hints(type(value))
    except (NameError, TypeError):  # a class of another distribution with unresolvable annotations
        hints = {}
    return {name: hints.get(name, type(getattr(value, name))) for name in names}


def _taken(given: Any, hint: Any, now: Any, path: str, known: list[str]) -> Any:
    """Convert `setting` to the declared type; return the current value if it is the same number."""
    kinds = _kinds(hint)
    for kind in kinds:
        try:
            taken = _read(given, kind)
        except TypeError:
            continue
        if kind is float and Decimal(repr(taken)) != Decimal(str(given)):
            # The lock records the number as written, and the run has to use exactly that number.
            raise ValueError(f"{path}: {_shown(given)} has more digits than a float; write {taken!r}")
        return now if type(now) is int and kind is float and now == taken else taken
    words = [said for kind in kinds if (said := _words(kind))]
    if not words or words == ["None"]:
        inside = [other for other in known if other.startswith(f"{path}.")]
        fix = f"set what is in it: {', '.join(inside)}" if inside else "it has no settings"
        raise ValueError(f"{path}: is a part of the policy, not a setting; {fix}")
    text = "the text " if isinstance(given, str) and str not in kinds else ""
    raise ValueError(f"{path}: write {' or '.join(words)}, not {text}{_shown(given)}")


def _kinds(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _words(kind: Any) -> str:
    """Describe what a person writes for a value of this type; "" for a part."""
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    if get_origin(kind) is tuple:
        each = next(iter(get_args(kind)), None)
        return f"a list, each {_words(each)}" if _words(each) else ""
    plain = {float: "a number", int: "a whole number", bool: "true or false", str: "text", NoneType: "None"}
    return plain.get(kind, "") if isinstance(kind, type) else ""


def _read(given: Any, kind: Any) -> Any:
    """Convert `setting` to one type; raises TypeError for a value of another type."""
    if get_origin(kind) is Literal and any(
        type(one) is type(given) and one == given for one in get_args(kind)
    ):
        return given
    if get_origin(kind) is tuple and isinstance(given, list | tuple):
        kinds = get_args(kind)
        each = kinds[:1] * len(given) if kinds[-1:] == (...,) else kinds
        if len(each) == len(given):
            return tuple(map(_read, given, each))
    if kind is float and type(given) in (int, float, Decimal) and math.isfinite(given):
        return float(given)
    if kind in (int, bool, str, NoneType) and type(given) is kind:
        return given
    raise TypeError


def _unknown(path: str, known: list[str]) -> str:
    """Suggest the path whose last name is nearest, preferring the part that was named."""
    part, _, last = path.rpartition(".")
    for other in near(last, [one.rpartition(".")[2] for one in known])[:1]:
        same = sorted(
            (one for one in known if one.rpartition(".")[2] == other),
            key=lambda one: not one.startswith(f"{part}."),
        )
        return f"no setting of the policy; did you mean {same[0]!r}?"
    if not known:
        return "the policy has no settings"
    listed = ", ".join(known[:MOST]) + (", ..." if len(known) > MOST else "")
    return f"no setting of the policy; write one of {listed} (kv-prereg policies NAME prints all)"


def _shown(given: Any) -> str:
    text = str(given) if isinstance(given, Decimal) else repr(given)
    return text if len(text) <= 60 else f"{text[:57]}..."
