"""The fields of anatomy/traces.jsonl and its documents, from which docs/anatomy.schema.json is generated."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from protocol.evidence.bytes import fields
from protocol.evidence.bytes.documents import headed
from protocol.evidence.bytes.fields import (
    DIGEST,
    Choice,
    Field,
    ListOf,
    OrNull,
    Plain,
    Table,
    Text,
    Whole,
    row,
)
from protocol.evidence.bytes.journal import HEAD
from protocol.evidence.run.ledger import TIME

__all__ = ["CHOSEN", "HALVES", "LINE", "MEASURED", "READINGS", "STATES", "TRACE", "VERDICT", "fault"]

HALVES = ("choose", "test")
READINGS = ("padded", "dropped")
MEASURED = ("labelled", "unmoved")  # the states of a trace with labels
STATES = (*MEASURED, "wrong", "short", "unreproduced", "failed")
_GRADE = Choice("correct", "wrong", "no answer", "scored", "timeout", "error")
_SPAN = Plain(
    lambda value: isinstance(value, list) and len(value) == 2 and all(map(Whole().holds, value)),
    {"type": "array", "prefixItems": 2 * [{"type": "integer", "minimum": 0}], "minItems": 2, "maxItems": 2},
    "[start, stop], two whole numbers",
)
_ANSWER = {"text": Field(Text(), "What the model went on with."), "grade": Field(_GRADE, "Of the text.")}
_WINDOWS = ListOf(
    row(Whole(), Whole(), Text(), _GRADE, words="[start, stop, text, grade]"),
    1,
    words="a list of [start, stop, text, grade]",
)
_KEPT = {
    "arm": Field(Text(), "The arm; oracle-occlusion is the labels themselves."),
    "budget": Field(Text(), "As in a record."),
    "slots": Field(
        OrNull(Whole(1)), "What it grants per KV head and layer; null where the arm failed before."
    ),
    "needed": Field(Plain(lambda value: value is None, {"type": "null"}, "null"), "Null: labels tell it."),
}
_WENT_ON = Table({**_KEPT, **_ANSWER})
_REFUSED = Table(
    {**_KEPT, "state": Field(Choice("failed"), "How it ended."), "reason": Field(Text(), "Why.")}
)
_VALUES = Table(
    {
        "sha256": Field(DIGEST, "Of the side file, which is named so."),
        "signals": Field(
            ListOf(
                row(Text(), OrNull(Whole()), words="[name, layer]"),
                1,
                words="a list of [name, layer or null]",
            ),
            "What its first rows are; layer null where all layers share a row.",
        ),
        "kept": Field(Whole(), "How many rows follow, one an entry of `kept`."),
    }
)


def _left_out(without: str, **named: Field) -> dict[str, Field]:
    return {name: field._replace(without=without) for name, field in named.items()}


_HEAD = {
    "registration": Field(DIGEST, "Digest of the lock."),
    "attempt": Field(Whole(1), "The attempt that labelled it."),
    "model": Field(Text(), "The model."),
    "task": Field(Text(), "The task."),
    "problem": Field(Text(), "Id of a development problem."),
    "half": Field(Choice(*HALVES), "By the MD5 of the id, as a number: even chooses, odd tests."),
    "chosen": Field(DIGEST, "Digest of anatomy/chosen.json.", without="a trace of the choosing half"),
    "state": Field(Choice(*STATES), "What became of it."),
    "reason": Field(Text(), "Why, unless labelled; else empty."),
    "time": Field(TIME, "UTC by the clock of the machine when it ended; it proves nothing."),
}
_FAILED = "it failed before"
_ANSWERED = {
    "prompt": Field(DIGEST, "Digest of the canonical [context, query] token ids."),
    "prompt_tokens": Field(Whole(1), "Tokens of context and query."),
    "text": Field(Text(), "The greedy answer of the whole cache."),
    "grade": Field(_GRADE, "Of the text."),
}
_CUT = {
    "tokens": Field(
        Whole(1), "Tokens that are fed before the continuation: prompt, and reasoning up to the cut."
    ),
    "span": Field(_SPAN, "Positions that may be occluded: [start, stop)."),
    "pieces": Field(ListOf(Text()), "Each of these tokens as text."),
    "control": Field(Table(_ANSWER), "The continuation with nothing occluded."),
}
_LABELLED = {
    "windows": Field(
        Table({name: Field(_WINDOWS, "Each window, and how the model went on.") for name in READINGS}),
        "By reading: other tokens in the place of a window, or its slots out of the cache.",
    ),
    "kept": Field(
        ListOf(
            Plain(
                lambda value: any(one.fits(value) for one in (_WENT_ON, _REFUSED)),
                {"oneOf": [_WENT_ON.schema(), _REFUSED.schema()]},
                "what an arm kept",
            ),
            1,
        ),
        "What each arm that evicts kept at the cut, at each budget, and then the labels themselves.",
    ),
    "values": Field(_VALUES, "Signals and kept slots by token, in a file beside."),
}
_NO_LABEL = "no label could be read"
TRACE = Table({**_HEAD, **_ANSWERED, **_CUT, **_LABELLED})
_UNLABELLED = Table({**_HEAD, **_ANSWERED, **_left_out(_NO_LABEL, **_CUT)})
_NOTHING = Table({**_HEAD, **_left_out(_FAILED, **_ANSWERED, **_CUT)})
BODIES = (TRACE, _UNLABELLED, _NOTHING)
LINE = Table(
    {
        "body": Field(fields.ANYTHING, "A trace."),
        "sha256": Field(DIGEST, "Digest of the canonical body."),
        "chain": Field(DIGEST, "Digest of the chain of the line before followed by this sha256."),
    }
)
_DOCUMENT = {
    "lock": Field(DIGEST, "The lock."),
    "traces": Field(HEAD, "The lines that it rests on, and the chain of the last one."),
    "ledger": Field(HEAD, "The ledger before it."),
}
CHOSEN = replace(headed("anatomy, chosen", _DOCUMENT), others=True)
VERDICT = replace(
    headed("anatomy, verdict", {**_DOCUMENT, "chosen": Field(DIGEST, "Digest of anatomy/chosen.json.")}),
    others=True,
)


def fault(body: Any) -> str | None:
    """Return the fault of a line's `body`, beginning with the field; else None."""
    state = body.get("state") if isinstance(body, Mapping) else None
    kind = TRACE if state in MEASURED else _NOTHING if state == "failed" else _UNLABELLED
    if wrong := fields.fault(kind, body, "body"):
        return wrong
    if bool(body["reason"]) == (state == "labelled"):
        return f"body.reason: must be {'empty' if state == 'labelled' else 'said'} in the state {state!r}"
    if ("chosen" in body) != (body["half"] == "test"):
        return "body.chosen: must be there in the testing half, and only there"
    return None
