"""JSON that people and other programs write, read strictly: only what every parser reads alike is accepted."""

import json
from collections.abc import Callable
from typing import Any, NoReturn

MAX_DIGITS = 16  # of an integer up to 2^53-1


class JsonFault(ValueError):
    """JSON that cannot be read, or that parsers may interpret differently; the message is the reason."""


def parse(data: bytes, *, integers_only: bool = False, build: Callable[[dict[str, Any]], Any] | None = None) -> Any:
    """Parse one JSON value. Raises JsonFault for bytes that are not UTF-8, a key that stands twice, NaN, an
    infinity, half a surrogate pair, and too many digits or levels.

    integers_only: as in documents of this project, where decimals and integers beyond 2^53-1 are text. build: makes
    an object of its members; without it they are a dict.
    """
    numbers: dict[str, Any] = {"parse_float": _refuse_decimal, "parse_int": _parse_integer} if integers_only else {}
    refuse_constant = _refuse_decimal if integers_only else _refuse_constant
    make_object = unique_keys if build is None else lambda members: build(unique_keys(members))
    try:
        text = data.decode()
        value = json.loads(text, object_pairs_hook=make_object, parse_constant=refuse_constant, **numbers)
        if "\\ud" in text or "\\uD" in text:  # what is no escape is UTF-8 already
            json.dumps(value, ensure_ascii=False).encode()
    except JsonFault:
        raise
    except UnicodeDecodeError as error:
        raise JsonFault(f"not UTF-8 at byte {error.start + 1}; save the file as UTF-8") from None
    except UnicodeEncodeError:
        raise JsonFault("contains half a surrogate pair, which UTF-8 cannot encode") from None
    except json.JSONDecodeError as error:
        raise JsonFault(f"not JSON: {error.msg} at character {error.colno}") from None
    except RecursionError:
        raise JsonFault("nested too deeply") from None
    except ValueError:  # thousands of digits
        raise JsonFault("has a number with too many digits") from None
    return value


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the members of an object, as a hook of `json.loads`. Raises JsonFault for a key that stands twice."""
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        raise JsonFault(f"{next(name for name in names if names.count(name) > 1)}: occurs twice; keep one of them")
    return members


def _refuse_constant(text: str) -> NoReturn:
    raise JsonFault(f"{text} is not JSON")


def _refuse_decimal(text: str) -> NoReturn:
    raise JsonFault(f"{text}: write decimals as strings; only integers are numbers")


def _parse_integer(text: str) -> int:
    if len(text.lstrip("-")) > MAX_DIGITS or abs(int(text)) >= 2**53:
        raise JsonFault("an integer beyond 2^53-1; write it as a string")
    return int(text)
