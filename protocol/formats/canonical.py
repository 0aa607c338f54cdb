"""Canonical JSON: one value has one sequence of bytes and one digest (RFC 8785, without floats).

Keys are ASCII, so sorting by code point equals sorting by UTF-16 unit, which the RFC requires. Decimals are
written as strings: a float has two readings (its shortest decimal, its bits), a string has one.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, NoReturn

from protocol.formats.refusals import BadInput, Tampered

MAX_INTEGER = 2**53 - 1  # readers that store numbers as doubles change larger integers
LONG_INTEGER = re.compile(rb"[:,\[]-?\d{16}")  # after a comma: an integer that could be larger
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def dumps(value: Any) -> bytes:
    """Return canonical bytes of strings, integers, booleans, None, sequences and mappings with ASCII keys.

    Raises BadInput, naming the key path, for anything else.
    """
    _check(value, "")
    return encode(value)


def encode(value: Any) -> bytes:
    """Return the canonical bytes of a value from `loads`, or of a part of it, without checking it again."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=dict)
    return text.encode()


def digest(value: Any) -> str:
    """Return the SHA-256 of the canonical bytes, in hex."""
    return hashlib.sha256(dumps(value)).hexdigest()


def loads(data: bytes, source: str, form: re.Pattern[bytes] | None = None) -> Any:
    """Parse canonical bytes; `source` names them in error messages. form: matches nothing but canonical bytes, and most
    that are expected here (`fields.Kind.canonical_pattern`); others are parsed more slowly.

    Raises Tampered for anything that `dumps` would not have written: duplicate keys, floats, NaN, spaces,
    keys out of order, needless escapes. The digest of the returned value is the SHA-256 of `data`.
    """
    try:
        value = json.loads(data.decode("ascii"), parse_float=_Float, parse_constant=_Float)
        if form is not None and form.fullmatch(data):
            return value
        if encode(value) == data and not LONG_INTEGER.search(b"," + data):
            return value  # no key is duplicated: encoding would have lost one of the two
    except (ValueError, RecursionError):
        pass
    return _read_with_paths(data, source)


def iter_texts(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the key path and text of every string in `value`, without keys."""
    match value:
        case str():
            yield path.lstrip("."), value
        case Mapping():
            for key, item in value.items():
                yield from iter_texts(item, f"{path}.{key}")
        case list() | tuple():
            for index, item in enumerate(value):
                yield from iter_texts(item, f"{path}[{index}]")


def _read_with_paths(data: bytes, source: str) -> Any:
    """Parse as `loads` does, more slowly: accepts non-ASCII text and names the key path of a fault."""
    try:
        parsed = json.loads(data.decode("utf-8"), object_pairs_hook=_Pairs, parse_float=_Float, parse_constant=_Float)
        value = _to_plain(parsed, "")
        written = dumps(value)
    except BadInput as error:
        raise Tampered(f"{source}: {error}") from None
    except RecursionError:
        raise Tampered(f"{source}: nested too deeply to be a document of kv-prereg") from None
    except ValueError as error:  # not UTF-8, not JSON, or an integer of thousands of digits
        raise Tampered(f"{source}: not JSON: {' '.join(str(error).split())}") from None
    if written != data:
        offset = next((i for i, (a, b) in enumerate(zip(written, data, strict=False)) if a != b), len(written))
        raise Tampered(f"{source}: not canonical JSON from byte {offset} on; the file was edited or rewritten")
    return value


class _Pairs(list[tuple[str, Any]]):
    """A parsed object with duplicate keys kept."""


class _Float(NamedTuple):
    """A number with a fraction or an exponent, NaN or an infinity, as text."""

    text: str


def _to_plain(parsed: Any, path: str) -> Any:
    match parsed:
        case _Pairs():
            value: dict[str, Any] = {}
            for key, item in parsed:
                if key in value:
                    _refuse(f"{path}.{key}", "occurs twice")
                value[key] = _to_plain(item, f"{path}.{key}")
            return value
        case _Float(text):
            _refuse(path, f"is the number {text}; decimals are written as strings")
        case list():
            return [_to_plain(item, f"{path}[{i}]") for i, item in enumerate(parsed)]
        case _:
            return parsed


def _check(value: Any, path: str) -> None:
    match value:
        case str():
            if not value.isascii() and _LONE_SURROGATE.search(value):
                _refuse(path, "contains half a surrogate pair, which UTF-8 cannot encode")
        case None | bool():
            pass
        case int():
            if abs(value) > MAX_INTEGER:
                _refuse(path, "is an integer beyond 2^53-1; write it as a string")
        case float():
            _refuse(path, f"is the number {value!r}; write decimals as strings")
        case list() | tuple():
            if set(map(type, value)) == {int} and min(value) >= -MAX_INTEGER and max(value) <= MAX_INTEGER:
                return  # fast path: trajectories are mostly lists of integers
            for index, item in enumerate(value):
                _check(item, f"{path}[{index}]")
        case Mapping():
            for key, item in value.items():
                if not (isinstance(key, str) and key.isascii()):
                    _refuse(path, f"has the key {key!r}; keys must be ASCII text")
                _check(item, f"{path}.{key}")
        case _:
            _refuse(path, f"is a {type(value).__name__}; only JSON values without floats can be written")


def _refuse(path: str, reason: str) -> NoReturn:
    raise BadInput(f"{path.lstrip('.') or 'the value'} {reason}")
