"""The settings of a press as a frozen value; the press is built from it for every run."""

from __future__ import annotations

import importlib
import inspect
import logging
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import field, fields, is_dataclass, make_dataclass
from functools import cache
from types import ModuleType
from typing import Any, get_args, get_origin, get_type_hints

from policies.settings import changed, paths
from protocol.evidence.refusals import hint
from protocol.presses.listed import PREFIX, refuse_unrunnable

__all__ = ["RATIO", "built", "installed", "names_in", "settled", "version"]

INNER = "press"
RATIO = "compression_ratio"


def installed() -> ModuleType:
    """Import kvpress and undo its change to transformers: it wraps every attention function of the process,
    so that other arms would run its code. Raises ValueError if it is not installed.
    """
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    before = dict(ALL_ATTENTION_FUNCTIONS.items())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # one of its dependencies imports a deprecated module
            module = importlib.import_module("kvpress")
    except ImportError as missing:
        raise ValueError(
            f"kvpress cannot be imported here ({missing.name}); run: pip install 'kvpress==0.5.5', in an "
            "environment of its own"
        ) from None
    logging.getLogger("kvpress").setLevel(logging.ERROR)  # commands print their own messages
    for name, function in before.items():
        if ALL_ATTENTION_FUNCTIONS[name] is not function:
            ALL_ATTENTION_FUNCTIONS[name] = function
    return module


def version() -> str:
    """Return the version of the installed kvpress."""
    from importlib.metadata import version

    return version("kvpress")


def settled(source: str, settings: Mapping[str, Any]) -> Any:
    """Return the settings of the press `source`, e.g. "kvpress:SnapKVPress", as a frozen dataclass with the
    name and fields of the press; an inner press is a nested dataclass. settings: by path.

    Raises ValueError, one line that names the path, for a press that does not run, an unknown path, a value
    of another type, and a value that the press refuses.
    """
    installed()
    described = _described(source.removeprefix(PREFIX), settings, "")
    named = set(names_in(described))
    known = [path for path in paths(described) if path not in named]
    plain = {path: value for path, value in settings.items() if path not in named}
    for path in plain:
        if path not in known:
            raise ValueError(f"{path}: no setting of {type(described).__name__}; {hint(path, known)}")
    made = changed(described, plain)
    built(made)
    return made


def names_in(described: Any, above: str = "") -> Iterator[str]:
    """Yield the paths of the inner presses."""
    for one in fields(described):
        inner = getattr(described, one.name)
        if is_dataclass(inner):
            yield f"{above}{one.name}"
            yield from names_in(inner, f"{above}{one.name}.")


def built(described: Any) -> Any:
    """Build the press. Raises ValueError for settings that it refuses."""
    values = {one.name: getattr(described, one.name) for one in fields(described)}
    for name, value in values.items():
        if value is inspect.Parameter.empty:
            raise ValueError(f"{name}: {type(described).__name__} has none by itself; set it")
        if is_dataclass(value):
            values[name] = built(value)
    try:
        return getattr(installed(), type(described).__name__)(**values)
    except (AssertionError, ValueError, TypeError) as refused:
        said = " ".join(str(refused).split()) or "refuses its settings"
        raise ValueError(f"{type(described).__name__}: {said}") from None


def _described(name: str, settings: Mapping[str, Any], at: str) -> Any:
    """Return the description without plain settings. prefix: path of this press, with a final point; "" for
    the outermost.
    """
    try:
        refuse_unrunnable(name)
    except ValueError as refused:
        raise ValueError(f"{at.removesuffix('.')}: {refused}" if at else str(refused)) from None
    kind = _declared(name)
    if INNER not in (one.name for one in fields(kind)):
        return kind()
    inner = settings.get(f"{at}{INNER}")
    if not isinstance(inner, str):
        raise ValueError(f'{at}{INNER}: names the press that {name} wraps; write "SnapKVPress", for one')
    return kind(**{INNER: _described(inner, settings, f"{at}{INNER}.")})


@cache
def _declared(name: str) -> type[Any]:
    """Return a frozen dataclass of the arguments of a press, with their types and defaults."""
    press = getattr(installed(), name)
    hints = get_type_hints(press.__init__)
    own = []
    for argument in inspect.signature(press).parameters.values():
        if argument.name.startswith("_"):
            continue
        hint = hints.get(argument.name, Any)
        if get_origin(hint) is list:
            hint = tuple[(*get_args(hint), ...)]  # type: ignore[misc]
        own.append((argument.name, hint, field(default=argument.default)))
    made = make_dataclass(name, own, frozen=True)
    made.__module__ = "kvpress"
    return made
