"""The fields of a record, from which `docs/record.schema.json` is generated."""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cache
from types import MappingProxyType
from typing import Any

from protocol.formats import fields
from protocol.formats.fields import DIGEST, Choice, Field, Integer, ListOf, OrNull, Plain, Table, Text
from protocol.formats.vocabulary import AS_RUN

FOLDERS = MappingProxyType({"probe": "probe", "confirm": "records"})  # of records, by phase
STATES = ("ok", "failed", "excluded")
MEASURED = ("stop", "grade", "cache")  # present if and only if a lane ended well
# Fields that only lanes that ended well may have.
ANSWER_FIELDS = ("score", "grade_second", "score_second", "thought", "divergence")
SCORES = {"grade": "score", "grade_second": "score_second"}  # present if and only if the grade is "scored"
_GRADE = Choice("correct", "wrong", "no answer", "scored", "timeout", "error")
SCORE = r"0\.[0-9]{6}|1\.000000"
_SCORE = Text(SCORE, 'a number from 0 to 1 with six places, such as "0.666667"')
_DECIMAL = Text(r"[0-9]+(\.[0-9]+)?", 'a decimal written as text, such as "0.5"')
_EVENTS = ListOf(ListOf(Integer(), 3, 3), expected="a list of [step, slots before, slots after]")

_CELL = Table(
    {
        "model": Field(Text(), "The model."),
        "task": Field(Text(), "The task."),
        "budget": Field(
            Text(
                r"full|[0-9]+|0\.[0-9]+( of full)?|[0-9]+ (B|[KMG]iB)|bytes of [0-9]+",
                'a share such as "0.5", whole slots, "0.1 of full", "48 KiB", "bytes of 64" or "full"',
            ),
            "A share of the prompt, whole slots per KV head and layer, a share of the full cache's mean use "
            '("0.1 of full"), bytes of a lane ("48 KiB"), the bytes of a number of slots as computed ("bytes '
            'of 64"), or "full".',
        ),
        "arm": Field(Text(), "The arm."),
        "seed": Field(Integer(), "The registered seed."),
    }
)
_CACHE = Table(
    {
        "mean": Field(_DECIMAL, "Slots per KV head and layer, mean over the forward passes."),
        "peak": Field(_DECIMAL, "The most slots after any forward pass."),
        "prefill_end": Field(_DECIMAL, "The slots at the end of the prefill."),
        "mean_bytes": Field(Integer(), "Bytes of keys and values in all layers, mean over the forward passes."),
        "peak_bytes": Field(Integer(), "The most slots after any forward pass."),
        "state_bytes": Field(Integer(), "The most bytes of the policy's own state at any moment."),
        "reads": Field(
            _DECIMAL,
            (
                "Slots per KV head and layer that at least one query read, mean over the new tokens; the "
                "bounds of a page count as one slot."
            ),
            if_absent="each new token read all stored slots, and no rule compares reads",
        ),
        "window_bytes": Field(
            Integer(1),
            "Bytes of the windows of sliding-window layers, the same at every moment: no policy evicts from them.",
            if_absent="the model has no such layers",
        ),
        "events": Field(_EVENTS, "Each compression: the step, the slots before it, and the slots after it."),
        "granted": Field(
            ListOf(Integer(1)),
            "The budget of each compression, per KV head and layer.",
            if_absent="some records of version 1",
        ),
    }
)
_BATCH = Table(
    {
        "problems": Field(
            ListOf(Text(), 1, expected="a list of at least one problem"),
            "The lanes that were decoded in one batch, in order.",
        ),
        "lanes": Field(Integer(1), "The most lanes in the batch at once."),
        "joined": Field(Integer(), "Forward passes of the batch before the lane's first.", if_absent="not ok"),
    }
)
_DIVERGENCE = Table(
    {
        "agrees": Field(
            Text("[01]+", "one digit for each position, 0 or 1"),
            (
                "The lane is fed the full cache's text: 1 where the lane would have sampled the same token "
                "with the same noise. The last position is the stop token, if there is one."
            ),
        ),
        "nats": Field(
            ListOf(Integer(), 1), "KL(full cache || lane) at each position, at temperature 1, in millionths of a nat."
        ),
    }
)

BODY = Table(
    {
        "registration": Field(DIGEST, "Digest of the lock."),
        "phase": Field(Choice("probe", "confirm"), "The model and settings that ran the lane."),
        "cell": Field(_CELL, "The cell and the problem of the lane."),
        "problem": Field(Text(), "Id of the problem."),
        "state": Field(Choice(*STATES), "How the lane ended."),
        "reason": Field(Text(), "Why the lane is not ok; empty if it is ok."),
        "prompt": Field(DIGEST, "Digest of the canonical [context, query] token ids."),
        "prompt_tokens": Field(Integer(1), "Tokens of the context."),
        "slots": Field(OrNull(Integer(1)), "The budget per KV head and layer; null without one."),
        "text": Field(Text(), "What was generated."),
        "tokens": Field(Integer(), "The number of new tokens, without the stop token."),
        "thought": Field(
            OrNull(Integer(1)),
            "The number of tokens up to and including the end-of-thinking mark; null without a mark.",
            if_absent="not ok, or generation.think_only is not registered",
        ),
        "stop": Field(OrNull(Choice("eos", "length")), "What ended the answer; null unless ok."),
        "answer": Field(OrNull(Text()), "What the grader extracted, or null."),
        "grade": Field(OrNull(_GRADE), "The grader's result; null unless ok."),
        "score": Field(_SCORE, "The score of the answer.", if_absent='the grade is not "scored"'),
        "grade_reason": Field(Text(), "The reason for the grade."),
        "grade_second": Field(
            _GRADE, "The result of a second, independent grader.", if_absent="no second grader reads the task"
        ),
        "score_second": Field(
            _SCORE, "The score that the grader gives to the answer.", if_absent='its grade is not "scored"'
        ),
        "divergence": Field(
            _DIVERGENCE,
            "How the lane differs from the full cache when it is fed the full cache's text.",
            if_absent="not ok, or the full cache's own, or no outcome is registered",
        ),
        "cache": Field(OrNull(_CACHE), "The measured memory; null unless ok."),
        "trajectory": Field(
            OrNull(Text("[0-9a-f]{64}(#[0-9]+)?", "a digest and a place, as <digest>#<place>")),
            "The side file and the place in it, or null.",
        ),
        "batch": Field(
            _BATCH,
            "The lanes that were decoded together.",
            if_absent="excluded, a record of version 1, or no number depends on it",
        ),
    }
)
_NULL = Plain(lambda value: value is None, {"type": "null"}, "null, since the other harness does not report it")
_UNSEEN = {name: Field(_NULL, "Not seen.") for name in ("prompt_tokens", "stop", "cache", "trajectory")}

OUTSIDE_BODY = Table(
    {
        "registration": Field(DIGEST, "Digest of the lock."),
        "phase": Field(Choice("confirm"), "Always confirm: there is no probe."),
        "cell": Field(
            Table(
                {
                    **{name: Field(Text(), name) for name in ("model", "task", "arm")},
                    "budget": Field(Choice(AS_RUN), "The arm that the harness ran."),
                    "seed": Field(Integer(), "The registered seed."),
                }
            ),
            "The task and problem of the lane.",
        ),
        "problem": Field(Text(), "Id of the problem, or its number among the drawn problems."),
        "source": Field(
            OrNull(Table({"file": Field(DIGEST, "Of the file."), "where": Field(Text(), "The location in the file.")})),
            "The row that the lane was read from; null without one.",
        ),
        "state": Field(Choice("ok", "failed"), "Failed: the files have no score for it."),
        "reason": Field(Text(), "Why the lane is not ok; empty if it is ok."),
        "prompt": Field(DIGEST, "Digest of the question in the row."),
        "grade": Field(
            OrNull(Choice("correct", "wrong", "scored")), "The score as written in the file; null unless ok."
        ),
        "score": Field(_SCORE, "The score of the answer.", if_absent='the grade is not "scored"'),
        **_UNSEEN,
    }
)
"""The fields of a record that is read from the files of another harness; it alone has a `source`."""
COSTS = Table(
    {
        "attempt": Field(Integer(1), "The attempt that recorded the lane."),
        "prefill_seconds": Field(_DECIMAL, "Seconds of the problem's prefill.", if_absent="not ok"),
        "decode_seconds": Field(_DECIMAL, "Seconds from joining the batch to leaving it.", if_absent="not ok"),
        "lanes": Field(Integer(1), "Lanes decoded at once.", if_absent="all but some records of version 1"),
        "executor": Field(
            Choice("local", "slurm", "ray"), "The executor that ran the lane.", if_absent="some records of version 1"
        ),
        "host": Field(Text(), "The host name of the machine that ran the lane.", if_absent="some records of version 1"),
        "device": Field(Text(), "The device that it ran on.", if_absent="some records of version 1"),
    }
)
_MOMENTS = ListOf(Integer(), 1, expected="a list of whole numbers, one a moment")
TRAJECTORY = Table(
    {
        "held": Field(_MOMENTS, "Slots, over layers and KV heads."),
        "allocated": Field(_MOMENTS, "Bytes of keys and values."),
        "heads": Field(Integer(1), "Layers times KV heads."),
    }
)


def _compile(form: bytes) -> re.Pattern[bytes]:
    """Python before 3.11.5 errs with possessive quantifiers (python/cpython#106052): nothing matches there."""
    return re.compile(form if sys.version_info >= (3, 11, 5) else b"(?!)")


@cache
def line_pattern() -> re.Pattern[bytes]:
    """Return a form of canonical lines with valid fields, except that the state may be contradicted and the digests
    wrong. Nearly every line has it: only others are checked field by field.
    """
    digest = DIGEST.canonical_pattern
    parts = BODY.canonical_pattern, digest, COSTS.canonical_pattern, digest
    return _compile(rb'\{"body":(?P<body>%b),"chain":%b,"costs":(?P<costs>%b),"sha256":%b\}' % parts)


@cache
def side_file_pattern() -> re.Pattern[bytes]:
    """Return the form of the canonical trajectories of one batch."""
    return _compile(ListOf(TRAJECTORY).canonical_pattern)


def find_fault(body: Any, costs: Any) -> str | None:
    """Return the fault of a record's `body` and `costs`, beginning with the field; else None."""
    is_outside = isinstance(body, Mapping) and "source" in body  # read from the files of another harness
    wrong = fields.find_fault(OUTSIDE_BODY if is_outside else BODY, body, "body") or find_state_fault(body)
    return wrong or fields.find_fault(COSTS, costs, "costs")


def find_state_fault(body: Mapping[str, Any]) -> str | None:
    """Return what contradicts the state of a body whose fields are valid; else None."""
    return next(_state_faults(body, ("grade", "source") if "source" in body else MEASURED), None)


def _state_faults(body: Mapping[str, Any], measured: Iterable[str]) -> Iterator[str]:
    """Yield what contradicts the state. measured: the fields that a lane has if it ended well."""
    if body["state"] == "ok":
        for name in measured:
            if body[name] is None:
                yield f"body.{name}: is missing; a lane in the state ok must have one"
        if body["reason"]:
            yield "body.reason: must be empty in the state ok"
        for grade, score in SCORES.items():
            if (body.get(grade) == "scored") != (score in body):
                message = "contradicts the" if score in body else "is missing for the"
                yield f"body.{score}: {message} {grade} {body.get(grade)!r}"
        return
    if not body["reason"]:
        yield f"body.reason: is empty; a record in the state {body['state']!r} must have a reason"
    for name in (*MEASURED, "trajectory", *ANSWER_FIELDS):
        if body.get(name) is not None:
            yield f"body.state: {body['state']!r} excludes the field {name}"


def format_agreement(agrees: str) -> str:
    """Return the score of a lane that agrees at these positions: the share of them, with six places."""
    return f"{Decimal(agrees.count('1')) / len(agrees):.6f}"


def format_reads(held: Sequence[int], heads: int, fed_tokens: int) -> str:
    """Return `cache.reads` of a lane whose new tokens read all slots that were held, and their own.

    held: the slots of all heads after each forward; those before a new token are the ones that it reads.
    """
    tokens_and_heads = fed_tokens * heads
    read = sum(held[-fed_tokens - 1 : -1]) + tokens_and_heads if fed_tokens else 0
    return f"{Decimal(read) / Decimal(tokens_and_heads or 1):.6f}"


def count_evictions(events: Iterable[Sequence[int]]) -> int:
    """Count the eviction steps that removed slots. Each event: step, slots before, slots after."""
    return sum(before > after for _, before, after in events)
