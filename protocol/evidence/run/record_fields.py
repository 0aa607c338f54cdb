"""What the fields of a record must hold: `docs/record.schema.json`, as code."""

import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

__all__ = ["STATES", "fault"]

STATES = ("ok", "failed", "excluded")
_GRADES = ("correct", "wrong", "no answer", "timeout", "error")
_MEASURED = ("stop", "grade", "cache")  # there when a lane ended well, and only then


class _Field(NamedTuple):
    """What a value must be, in words that follow "must be", and whether one is."""

    words: str
    holds: Callable[[Any], bool]
    optional: bool = False


def _text(pattern: str, words: str) -> _Field:
    return _Field(words, lambda value: isinstance(value, str) and bool(re.fullmatch(pattern, value)))


def _whole(least: int) -> _Field:
    return _Field(f"a whole number from {least}", lambda value: type(value) is int and value >= least)


def _one_of(*words: str) -> _Field:
    return _Field(f"one of {', '.join(words)}", lambda value: value in words)


def _or_null(field: _Field) -> _Field:
    return _Field(f"{field.words}, or null", lambda value: value is None or field.holds(value))


def _sometimes(field: _Field) -> _Field:
    return field._replace(optional=True)


def _list(each: Callable[[Any], bool], words: str, least: int = 0) -> _Field:
    return _Field(
        words, lambda value: isinstance(value, list) and len(value) >= least and all(map(each, value))
    )


def _event(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 3 and all(map(_whole(0).holds, value))


_ANY_TEXT = _Field("text", lambda value: isinstance(value, str))
_DIGEST = _text("[0-9a-f]{64}", "a SHA-256 digest in lower-case hex")
_DECIMAL = _text(r"[0-9]+(\.[0-9]+)?", 'a decimal written as text, such as "0.5"')
_OBJECT = _Field("an object", lambda value: isinstance(value, Mapping))

_BODY = MappingProxyType(
    {
        "registration": _DIGEST,
        "phase": _one_of("probe", "confirm"),
        "cell": _OBJECT,
        "problem": _ANY_TEXT,
        "state": _one_of(*STATES),
        "reason": _ANY_TEXT,
        "prompt": _DIGEST,
        "prompt_tokens": _whole(1),
        "slots": _or_null(_whole(1)),
        "text": _ANY_TEXT,
        "tokens": _whole(0),
        "stop": _or_null(_one_of("eos", "length")),
        "answer": _or_null(_ANY_TEXT),
        "grade": _or_null(_one_of(*_GRADES)),
        "grade_reason": _ANY_TEXT,
        "grade_second": _sometimes(_one_of(*_GRADES)),  # of tasks that a second grader reads too
        "cache": _or_null(_OBJECT),
        "trajectory": _or_null(_text("[0-9a-f]{64}(#[0-9]+)?", "a digest and a place, as <digest>#<place>")),
        "batch": _sometimes(_OBJECT),  # records of before 2026-11-21 lack it
    }
)
_PARTS = MappingProxyType(
    {
        "cell": {
            "model": _ANY_TEXT,
            "task": _ANY_TEXT,
            "budget": _text(r"full|[0-9]+|0\.[0-9]+", 'a share such as "0.5", whole slots or "full"'),
            "arm": _ANY_TEXT,
            "seed": _whole(0),
        },
        "cache": {
            "mean": _DECIMAL,
            "peak": _DECIMAL,
            "prefill_end": _DECIMAL,
            "mean_bytes": _whole(0),
            "peak_bytes": _whole(0),
            "state_bytes": _whole(0),
            "events": _list(_event, "a list of [step, slots before, slots after]"),
        },
        "batch": {
            "problems": _list(_ANY_TEXT.holds, "a list of at least one problem", 1),
            "lanes": _whole(1),
            "joined": _sometimes(_whole(0)),
        },
    }
)
_COSTS = MappingProxyType(
    {
        "attempt": _whole(1),
        "prefill_seconds": _sometimes(_DECIMAL),
        "decode_seconds": _sometimes(_DECIMAL),
        "lanes": _sometimes(_whole(1)),  # in records of before 2026-11-21, which have no batch
    }
)


def fault(body: Any, costs: Any) -> str | None:
    """What keeps `body` and `costs` from being those of a record, beginning with the field; else None."""
    return next(_faults(body, costs), None)


def _faults(body: Any, costs: Any) -> Iterator[str]:
    yield from _wrong("body", body, _BODY)
    for name, fields in _PARTS.items():
        if body.get(name) is not None:
            yield from _wrong(f"body.{name}", body[name], fields)
    if body["state"] == "ok":
        yield from (
            f"body.{name}: is missing; a lane that ended well has one"
            for name in _MEASURED
            if body[name] is None
        )
        if body["reason"]:
            yield "body.reason: must be empty; a lane that ended well needs none"
    else:
        if not body["reason"]:
            yield f"body.reason: is empty; a record in the state {body['state']!r} says why"
        for name in (*_MEASURED, "trajectory", "grade_second"):
            if body.get(name) is not None:
                yield f"body.state: {body['state']!r} goes with no {name}"
    yield from _wrong("costs", costs, _COSTS)


def _wrong(at: str, values: Any, fields: Mapping[str, _Field]) -> Iterator[str]:
    if not isinstance(values, Mapping):
        yield f"{at}: must be an object"
        return
    others = values.keys() ^ fields.keys()
    if wrong := sorted(str(name) for name in others if name not in fields or not fields[name].optional):
        yield f"{at}: the fields {wrong} are missing or unknown"
    for name, field in fields.items():
        if name in values and not field.holds(values[name]):
            yield f"{at}.{name}: is {_short(values[name])}; it must be {field.words}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
