"""Messages about wrong values: the fault, the value as TOML, and the value that was probably meant."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any

__all__ = ["Fault", "meant", "typed", "wrong"]

NUMBER = re.compile(r"[+-]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
WHOLE_PERCENT = 2  # a number from here on, given where a share is expected, is read as a percentage
MOST = 60  # characters of a value that a message shows


class Fault(Exception):
    """A wrong value. Both messages begin with its path.

    author_message: for the author of the value, with the fix. audit_message: for who checks evidence.
    missing, unknown: the name of the missing or unknown field, where that is the fault.
    """

    def __init__(self, written: str, found: str, *, missing: str = "", unknown: str = ""):
        super().__init__(found)
        self.written, self.found, self.missing, self.unknown = written, found, missing, unknown

    @classmethod
    def of(cls, both: str) -> "Fault":
        return cls(both, both)


def wrong(value: Any, at: str, words: str, fix: str | None, *, text: bool) -> Fault:
    """Return the fault of a value that is not what `expected` describes.

    fix: what to type instead. is_text: whether the value should be text.
    """
    number = isinstance(value, int | Decimal) and not isinstance(value, bool)
    shown = str(value) if number else repr(value)
    short = shown if len(shown) <= MOST else f"{shown[: MOST - 3]}..."
    what = "the text " if isinstance(value, str) and not text else ""
    asked = words if fix is None else f"{fix} ({words})"
    return Fault(f"{at}: write {asked}, not {what}{typed(value)}", f"{at}: is {short}; it must be {words}")


def typed(value: Any) -> str:
    """Return `value` as TOML on one line, shortened to 60 characters."""
    try:
        text = _typed(value)
    except RecursionError:
        return "what is nested so deeply"
    return text if len(text) <= MOST else f"{text[: MOST - 3]}..."


def meant(value: Any, fits: Callable[[Any], bool], *, share: bool = False) -> str | None:
    """Return what to type instead of `value` so that `accepts` takes it; None where nothing is near.

    Tried are the value with and without quotes, brackets or percent sign. is_share: whether a number above 1
    is read as a percentage.
    """
    for other in _others(value, share):
        if fits(other):
            return _typed(other)
    return None


def _others(value: Any, share: bool) -> Iterator[Any]:
    if isinstance(value, bool):
        return
    if isinstance(value, str):
        text = value.strip()
        if text in ("true", "false"):
            yield text == "true"
        number, percent = text.removesuffix("%").strip(), text.endswith("%")
        if len(number) <= 20 and NUMBER.fullmatch(number):
            exact = Decimal(number.replace("_", "")) / (100 if percent else 1)
            yield from _numbers(exact)
            if share and not percent and exact >= WHOLE_PERCENT:
                yield exact / 100
    elif isinstance(value, int | Decimal):
        exact = Decimal(value)
        if exact.is_finite() and abs(exact.adjusted()) <= 20:
            yield from _numbers(exact)
            if share and exact >= WHOLE_PERCENT:
                yield exact / 100
            yield f"{value:f}" if isinstance(value, Decimal) else str(value)
    if isinstance(value, list) and len(value) == 1:
        yield value[0]
    if not isinstance(value, list):
        yield [value]


def _numbers(exact: Decimal) -> Iterator[int | Decimal]:
    if exact == exact.to_integral_value():
        yield int(exact)
    yield exact


def _typed(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_typed, value))}]"
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_key(str(name))} = {_typed(one)}" for name, one in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, Decimal) and value.is_finite() and abs(value.adjusted()) <= 20:
        return f"{value.normalize():f}" if value != value.to_integral_value() else str(value)
    if value is None:
        return "null"
    if isinstance(value, Decimal) and value.is_infinite():
        return "inf" if value > 0 else "-inf"
    return value.isoformat() if hasattr(value, "isoformat") else str(value).lower()


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)
