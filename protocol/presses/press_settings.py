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

from policies.settings import change_settings, setting_paths
from protocol.formats.suggestions import suggest
from protocol.presses.supported_presses import PREFIX, refuse_unrunnable

INNER_FIELD = "press"
RATIO_FIELD = "compression_ratio"


def import_kvpress() -> ModuleType:
    """Import kvpress and undo its change to transformers: it wraps every attention function of the process,
    so that other arms would run its code. Raises ValueError if it is not installed.
    """
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    functions = dict(ALL_ATTENTION_FUNCTIONS.items())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # one of its dependencies imports a deprecated module
            module = importlib.import_module("kvpress")
    except ImportError as missing:
        raise ValueError(
            f"kvpress cannot be imported here ({missing.name}); run, in a separate environment: pip install "
            "'kvpress==0.5.5'"
        ) from None
    logging.getLogger("kvpress").setLevel(logging.ERROR)  # commands print their own messages
    for name, function in functions.items():
        if ALL_ATTENTION_FUNCTIONS[name] is not function:
            ALL_ATTENTION_FUNCTIONS[name] = function
    return module


def kvpress_version() -> str:
    """Return the version of the installed kvpress."""
    from importlib.metadata import version

    return version("kvpress")


def describe_press(source: str, settings: Mapping[str, Any]) -> Any:
    """Return the settings of the press `source`, e.g. "kvpress:SnapKVPress", as a frozen dataclass with the
    name and fields of the press; an inner press is a nested dataclass. settings: by path.

    Raises ValueError, one line that names the path, for a press that does not run, an unknown path, a value
    of another type, and a value that the press refuses.
    """
    import_kvpress()
    described = _describe(source.removeprefix(PREFIX), settings, "")
    inner_presses = set(inner_paths(described))
    known = [path for path in setting_paths(described) if path not in inner_presses]
    plain_settings = {path: value for path, value in settings.items() if path not in inner_presses}
    for path in plain_settings:
        if path not in known:
            raise ValueError(f"{path}: is not a setting of {type(described).__name__}; {suggest(path, known)}")
    press = change_settings(described, plain_settings)
    build_press(press)
    return press


def inner_paths(described: Any, prefix: str = "") -> Iterator[str]:
    """Yield the paths of the inner presses."""
    for setting in fields(described):
        inner = getattr(described, setting.name)
        if is_dataclass(inner):
            yield f"{prefix}{setting.name}"
            yield from inner_paths(inner, f"{prefix}{setting.name}.")


def build_press(described: Any) -> Any:
    """Build the press. Raises ValueError for settings that it refuses."""
    values = {setting.name: getattr(described, setting.name) for setting in fields(described)}
    for name, value in values.items():
        if value is inspect.Parameter.empty:
            raise ValueError(f"{name}: {type(described).__name__} has no default; set it")
        if is_dataclass(value):
            values[name] = build_press(value)
    try:
        return getattr(import_kvpress(), type(described).__name__)(**values)
    except (AssertionError, ValueError, TypeError) as refusal:
        message = " ".join(str(refusal).split()) or "refuses its settings"
        raise ValueError(f"{type(described).__name__}: {message}") from None


def _describe(name: str, settings: Mapping[str, Any], prefix: str) -> Any:
    """Return the description without plain settings. prefix: path of this press with a final point, "" outermost."""
    try:
        refuse_unrunnable(name)
    except ValueError as refusal:
        raise ValueError(f"{prefix.removesuffix('.')}: {refusal}" if prefix else str(refusal)) from None
    kind = _declare_press(name)
    if INNER_FIELD not in (setting.name for setting in fields(kind)):
        return kind()
    inner = settings.get(f"{prefix}{INNER_FIELD}")
    if not isinstance(inner, str):
        raise ValueError(
            f'{prefix}{INNER_FIELD}: must name the press that {name} wraps; write for example "SnapKVPress"'
        )
    return kind(**{INNER_FIELD: _describe(inner, settings, f"{prefix}{INNER_FIELD}.")})


@cache
def _declare_press(name: str) -> type[Any]:
    """Return a frozen dataclass of the arguments of a press, with their types and defaults."""
    press = getattr(import_kvpress(), name)
    hints = get_type_hints(press.__init__)
    arguments = []
    for argument in inspect.signature(press).parameters.values():
        if argument.name.startswith("_"):
            continue
        hint = hints.get(argument.name, Any)
        if get_origin(hint) is list:
            hint = tuple[(*get_args(hint), ...)]  # type: ignore[misc]
        arguments.append((argument.name, hint, field(default=argument.default)))
    declared = make_dataclass(name, arguments, frozen=True)
    declared.__module__ = "kvpress"
    return declared
