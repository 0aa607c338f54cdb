"""Messages about wrong values: the fault, the value as TOML, and the value that was probably meant."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any

NUMBER = re.compile(r"[+-]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
MIN_PERCENT = 2  # a number from here on, given where a share is expected, is read as a percentage
MAX_CHARACTERS = 60  # characters of a value that a message shows


class Fault(Exception):
    """A wrong value. Both messages begin with its path.

    author_message: for the author of the value, with the fix. audit_message: for who checks evidence, if another.
    missing, unknown: the name of the missing or unknown field, where that is the fault.
    """

    def __init__(self, author_message: str, audit_message: str = "", *, missing: str = "", unknown: str = ""):
        self.author_message, self.audit_message = author_message, audit_message or author_message
        self.missing, self.unknown = missing, unknown
        super().__init__(self.audit_message)


def value_fault(value: Any, path: str, expected: str, fix: str | None, *, is_text: bool) -> Fault:
    """Return the fault of a value that is not what `expected` describes.

    fix: what to type instead. is_text: whether the value should be text.
    """
    is_number = isinstance(value, int | Decimal) and not isinstance(value, bool)
    literal = str(value) if is_number else repr(value)
    shortened = literal if len(literal) <= MAX_CHARACTERS else f"{literal[: MAX_CHARACTERS - 3]}..."
    prefix = "the text " if isinstance(value, str) and not is_text else ""
    instruction = expected if fix is None else f"{fix} ({expected})"
    return Fault(
        f"{path}: write {instruction}, not {prefix}{format_toml(value)}",
        f"{path}: is {shortened}; it must be {expected}",
    )


def format_toml(value: Any) -> str:
    """Return `value` as TOML on one line, shortened to 60 characters."""
    try:
        text = _format_toml(value)
    except RecursionError:
        return "a deeply nested value"
    return text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 3]}..."


def suggest_value(value: Any, accepts: Callable[[Any], bool], *, is_share: bool = False) -> str | None:
    """Return what to type instead of `value` so that `accepts` takes it; None where nothing is near.

    Tried are the value with and without quotes, brackets or percent sign. is_share: whether a number above 1
    is read as a percentage.
    """
    for candidate in _candidates(value, is_share):
        if accepts(candidate):
            return _format_toml(candidate)
    return None


def _candidates(value: Any, is_share: bool) -> Iterator[Any]:
    if isinstance(value, bool):
        return
    if isinstance(value, str):
        text = value.strip()
        if text in ("true", "false"):
            yield text == "true"
        number, is_percent = text.removesuffix("%").strip(), text.endswith("%")
        if len(number) <= 20 and NUMBER.fullmatch(number):
            exact = Decimal(number.replace("_", "")) / (100 if is_percent else 1)
            yield from _as_numbers(exact)
            if is_share and not is_percent and exact >= MIN_PERCENT:
                yield exact / 100
    elif isinstance(value, int | Decimal):
        exact = Decimal(value)
        if exact.is_finite() and abs(exact.adjusted()) <= 20:
            yield from _as_numbers(exact)
            if is_share and exact >= MIN_PERCENT:
                yield exact / 100
            yield f"{value:f}" if isinstance(value, Decimal) else str(value)
    if isinstance(value, list) and len(value) == 1:
        yield value[0]
    if not isinstance(value, list):
        yield [value]


def _as_numbers(exact: Decimal) -> Iterator[int | Decimal]:
    if exact == exact.to_integral_value():
        yield int(exact)
    yield exact


def _format_toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_format_toml, value))}]"
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_format_key(str(name))} = {_format_toml(item)}" for name, item in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, Decimal) and value.is_finite() and abs(value.adjusted()) <= 20:
        return f"{value.normalize():f}" if value != value.to_integral_value() else str(value)
    if value is None:
        return "null"
    if isinstance(value, Decimal) and value.is_infinite():
        return "inf" if value > 0 else "-inf"
    return value.isoformat() if hasattr(value, "isoformat") else str(value).lower()


def _format_key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)
