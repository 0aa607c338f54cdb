"""Change settings of a policy by their paths, e.g. {"scoring.window": 64}.

Paths are those that `structure` returns. A setting is a number, text, true or false, or a list of these. A
part of the policy (a class) is no setting; `policies.get` can override it completely. The state alone has names,
{"state": "q4_0"}, which are set before what is in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from decimal import Decimal
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from policies.contract import State
from policies.policy import Policy
from policies.quantised.states import STATES
from policies.state import Verbatim
from protocol.formats.suggestions import nearest_names, suggest

T = TypeVar("T")
MAX_LISTED = 8  # paths that an error lists


def with_settings(policy: Policy, settings: Mapping[str, Any]) -> Policy:
    """Return the policy with each setting changed at its path.

    A value is converted to the declared type of its field: a float may be given as an int or a Decimal too, a
    tuple as a list. All settings of one part change at once, so that the part validates them together; the
    signals that it then needs are constructed once, so that they validate them too. Raises ValueError, one
    line that begins with the path, for an unknown path (with the nearest one), for a value of another type,
    and for a value that a part or a signal refuses.
    """
    inner = dict(settings)
    if "state" in inner:
        policy = replace(policy, state=_find_state(policy, inner.pop("state")))
    new = change_settings(policy, inner)
    try:
        _ = new.needs
    except ValueError as error:
        raise ValueError(f"{', '.join(settings)}: {' '.join(str(error).split())}") from None
    return new


def _find_state(policy: Policy, name: Any) -> State:
    if type(policy.state) is not Verbatim:
        own = type(policy.state).__name__
        raise ValueError(
            f"state: {own} is the subject of this policy and cannot be changed; set the state of a policy "
            "that stores slots as computed"
        )
    if not isinstance(name, str) or name not in STATES:
        raise ValueError(f"state: no state is named {_shorten(name)}; {suggest(str(name), STATES)}")
    return STATES[name]


def change_settings(value: T, settings: Mapping[str, Any]) -> T:
    """Return any frozen dataclass with some of its settings changed, like `with_settings`."""
    return _change(value, settings, "", list(setting_paths(value)))


def setting_paths(value: Any, prefix: str = "") -> Iterator[str]:
    """Yield the path of every setting in a frozen dataclass, in the order of its fields."""
    for name, hint in _field_types(value).items():
        inner = getattr(value, name)
        if any(kind is not NoneType and _describe_type(kind) for kind in _alternatives(hint)):
            yield f"{prefix}{name}"
        if is_dataclass(inner):
            yield from setting_paths(inner, f"{prefix}{name}.")


def _change(value: T, settings: Mapping[str, Any], prefix: str, known: list[str]) -> T:
    field_types = _field_types(value)
    new: dict[str, Any] = {}
    deeper: dict[str, dict[str, Any]] = {}
    for path, setting in settings.items():
        head, _, rest = path.partition(".")
        if head not in field_types or (rest and not is_dataclass(getattr(value, head))):
            raise ValueError(f"{prefix}{path}: {_explain_unknown_path(f'{prefix}{path}', known)}")
        if rest:
            deeper.setdefault(head, {})[rest] = setting
        else:
            new[head] = _convert(setting, field_types[head], getattr(value, head), f"{prefix}{head}", known)
    if twice := sorted(new.keys() & deeper.keys()):
        raise ValueError(f"{prefix}{twice[0]}: is set, and a setting inside it is set too; leave out one of them")
    for head, inner in deeper.items():
        new[head] = _change(getattr(value, head), inner, f"{prefix}{head}.", known)
    try:
        return replace(value, **new)  # type: ignore[type-var]  # a dataclass: it has fields
    except (ValueError, TypeError, ArithmeticError) as error:
        labels = ", ".join(f"{prefix}{path}" for path in settings)
        raise ValueError(f"{labels}: {' '.join(str(error).split())}") from None


def _field_types(value: Any) -> dict[str, Any]:
    """Return the declared type of every settable field by name; its value's type if unresolvable."""
    names = [field.name for field in fields(value) if field.init]
    try:
        hints = get_type_hints(type(value))
    except (NameError, TypeError):  # a class of another distribution with unresolvable annotations
        hints = {}
    return {name: hints.get(name, type(getattr(value, name))) for name in names}


def _convert(setting: Any, hint: Any, current: Any, path: str, known: list[str]) -> Any:
    """Convert `setting` to the declared type; return the current value if it is the same number."""
    kinds = _alternatives(hint)
    for kind in kinds:
        try:
            converted = _convert_to(setting, kind)
        except TypeError:
            continue
        if kind is float and Decimal(repr(converted)) != Decimal(str(setting)):
            # The lock records the number as written, and the run has to use exactly that number.
            raise ValueError(f"{path}: {_shorten(setting)} has more digits than a float can store; write {converted!r}")
        return current if type(current) is int and kind is float and current == converted else converted
    labels = [label for kind in kinds if (label := _describe_type(kind))]
    if not labels or labels == ["None"]:
        inner_paths = [other for other in known if other.startswith(f"{path}.")]
        fix = f"set one of its settings: {', '.join(inner_paths)}" if inner_paths else "it has no settings"
        raise ValueError(f"{path}: is a part of the policy, not a setting; {fix}")
    text = "the text " if isinstance(setting, str) and str not in kinds else ""
    raise ValueError(f"{path}: write {' or '.join(labels)}, not {text}{_shorten(setting)}")


def _alternatives(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _describe_type(kind: Any) -> str:
    """Describe what a person writes for a value of this type; "" for a part."""
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    if get_origin(kind) is tuple:
        item = next(iter(get_args(kind)), None)
        return f"a list, each {_describe_type(item)}" if _describe_type(item) else ""
    plain = {float: "a number", int: "a whole number", bool: "true or false", str: "text", NoneType: "None"}
    return plain.get(kind, "") if isinstance(kind, type) else ""


def _convert_to(setting: Any, kind: Any) -> Any:
    """Convert `setting` to one type; raises TypeError for a value of another type."""
    if get_origin(kind) is Literal and any(
        type(option) is type(setting) and option == setting for option in get_args(kind)
    ):
        return setting
    if get_origin(kind) is tuple and isinstance(setting, list | tuple):
        kinds = get_args(kind)
        item_kinds = kinds[:1] * len(setting) if kinds[-1:] == (...,) else kinds
        if len(item_kinds) == len(setting):
            return tuple(map(_convert_to, setting, item_kinds))
    if kind is float and type(setting) in (int, float, Decimal) and math.isfinite(setting):
        return float(setting)
    if kind in (int, bool, str, NoneType) and type(setting) is kind:
        return setting
    raise TypeError


def _explain_unknown_path(path: str, known: list[str]) -> str:
    """Suggest the path whose last name is nearest, preferring the part that was named."""
    part, _, last = path.rpartition(".")
    for nearest in nearest_names(last, [candidate.rpartition(".")[2] for candidate in known])[:1]:
        matches = sorted(
            (candidate for candidate in known if candidate.rpartition(".")[2] == nearest),
            key=lambda candidate: not candidate.startswith(f"{part}."),
        )
        return f"no setting of the policy; did you mean {matches[0]!r}?"
    if not known:
        return "the policy has no settings"
    listed = ", ".join(known[:MAX_LISTED]) + (", ..." if len(known) > MAX_LISTED else "")
    return f"no setting of the policy; write one of {listed} (kv-prereg policies NAME prints all)"


def _shorten(setting: Any) -> str:
    text = str(setting) if isinstance(setting, Decimal) else repr(setting)
    return text if len(text) <= 60 else f"{text[:57]}..."
