"""The fields of anatomy/traces.jsonl and its documents, from which docs/anatomy.schema.json is generated."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from protocol.formats import fields
from protocol.formats.documents import declare_document
from protocol.formats.fields import DIGEST, TIME, Choice, Field, Integer, ListOf, OrNull, Plain, Table, Text, TupleOf
from protocol.formats.journal import HEAD

HALVES = ("choose", "test")
BEYOND = PARTS, POSITION = "parts", "position"  # what agreement is asked beyond
READINGS = ("padded", "dropped")
MEASURED = ("labelled", "unmoved")  # the states of a trace with labels
CORRECT = "correct"
ORACLE = "oracle-occlusion"  # the arm that retains the tokens that the labels mark: an upper bound, no policy
STATES = (*MEASURED, "wrong", "short", "unreproduced", "failed")
DROPPED = {
    "bottom": "SlipKV: drops the share of the thought that the answer attends to least",
    "random": "drops as many tokens of the thought at random",
    "top": "CrystalKV: drops as many tokens that the answer attends to most",
}


@dataclass(frozen=True)
class AnyOf(fields.Kind):
    """A value of one of several kinds."""

    kinds: tuple[fields.Kind, ...]
    expected: str = "a value of one of several kinds"

    def accepts(self, value: Any) -> bool:
        return any(kind.validator(value) for kind in self.kinds)


_GRADE = Choice(CORRECT, "wrong", "no answer", "scored", "timeout", "error")
_SPAN = TupleOf((Integer(), Integer()), "[start, stop], two whole numbers")
_ANSWER = {
    "text": Field(Text(), "The text that the model wrote next."),
    "grade": Field(_GRADE, "The grade of the text."),
}
_WINDOWS = ListOf(
    TupleOf((Integer(), Integer(), Text(), _GRADE), "[start, stop, text, grade]"),
    1,
    expected="a list of [start, stop, text, grade]",
)
_ARM_FIELDS = {
    "arm": Field(Text(), "The arm; oracle-occlusion selects by the labels themselves."),
    "budget": Field(Text(), "As in a record."),
    "slots": Field(OrNull(Integer(1)), "Slots granted per KV head and layer; null where the arm failed earlier."),
    "needed": Field(
        Plain(lambda value: value is None, {"type": "null"}, "null"), "Always null: the labels determine it."
    ),
}
_CONTINUED = Table({**_ARM_FIELDS, **_ANSWER})
_REFUSED = Table(
    {**_ARM_FIELDS, "state": Field(Choice("failed"), "How the continuation ended."), "reason": Field(Text(), "Why.")}
)
_VALUES = Table(
    {
        "sha256": Field(DIGEST, "Digest of the side file, and its name."),
        "signals": Field(
            ListOf(
                TupleOf((Text(), OrNull(Integer())), "[name, layer]"),
                1,
                expected="a list of [name, layer or null]",
            ),
            "The signals of the first rows; layer is null where all layers share a row.",
        ),
        "kept": Field(Integer(), "The number of rows that follow, one for each entry of `kept`."),
    }
)


_SLIP = Table(
    {
        "answer": Field(Integer(1), "Number of answer tokens, whose attention ranks the thought."),
        **{name: Field(Table(_ANSWER), f"The continuation without {what}.") for name, what in DROPPED.items()},
    }
)


def _make_optional(if_absent: str, **members: Field) -> dict[str, Field]:
    return {name: field._replace(if_absent=if_absent) for name, field in members.items()}


_HEAD = {
    "registration": Field(DIGEST, "Digest of the lock."),
    "attempt": Field(Integer(1), "The attempt that labelled the trace."),
    "model": Field(Text(), "The model."),
    "task": Field(Text(), "The task."),
    "problem": Field(Text(), "Id of a development problem."),
    "half": Field(Choice(*HALVES), 'The half: "choose" if the MD5 of the id is even as a number, "test" if it is odd.'),
    "chosen": Field(DIGEST, "Digest of anatomy/chosen.json.", if_absent="a trace of the choosing half"),
    "state": Field(Choice(*STATES), "How labelling the trace ended."),
    "reason": Field(Text(), "Why the trace is not labelled; empty if it is."),
    "time": Field(TIME, "UTC time at the end, by the machine's clock; it proves nothing."),
}
_FAILED = "it failed before"
_ANSWERED = {
    "prompt": Field(DIGEST, "Digest of the canonical [context, query] token ids."),
    "prompt_tokens": Field(Integer(1), "Tokens of context and query."),
    "text": Field(Text(), "The answer with the full cache."),
    "grade": Field(_GRADE, "The grade of the text."),
}
_CUT = {
    "tokens": Field(Integer(1), "Tokens that are fed before the continuation: prompt, and reasoning up to the cut."),
    "span": Field(_SPAN, "Positions that may be occluded: [start, stop)."),
    "pieces": Field(ListOf(Text()), "Each of these tokens as text."),
    "control": Field(Table(_ANSWER), "The continuation with nothing occluded."),
}
_LABELLED = {
    "windows": Field(
        Table({name: Field(_WINDOWS, "Each window, and the model's continuation.") for name in READINGS}),
        "By reading: the window is replaced by other tokens, or its slots are removed from the cache.",
    ),
    "kept": Field(
        ListOf(AnyOf((_CONTINUED, _REFUSED), "tokens that an arm kept"), 1),
        "The tokens that each evicting arm kept at the cut, at each budget, followed by those that the "
        "labels would keep.",
    ),
    "values": Field(_VALUES, "The side file with signals and kept slots for each token."),
}
_NO_LABEL = "no label could be read"
_SLIPPED = _make_optional("`slip` is not registered, or the thought is too short", slip=Field(_SLIP, "SlipKV."))
TRACE = Table({**_HEAD, **_ANSWERED, **_CUT, **_LABELLED, **_SLIPPED})
_UNLABELLED = Table(
    {
        **_HEAD,
        **_ANSWERED,
        **_make_optional(_NO_LABEL, **_CUT),
        **_make_optional("it has no `slip`", values=_LABELLED["values"]),
        **_SLIPPED,
    }
)
_FAILED_TRACE = Table({**_HEAD, **_make_optional(_FAILED, **_ANSWERED, **_CUT)})
BODIES = (TRACE, _UNLABELLED, _FAILED_TRACE)
EVENTS: Mapping[str, Field] = MappingProxyType(
    {
        "anatomy": Field(
            Table(
                {
                    "number": Field(Integer(1), "The attempt, from 1."),
                    "records": Field(Integer(), "The number of traces that it found."),
                }
            ),
            "An attempt to label traces began.",
        ),
        "occluded": Field(
            Table({"records": Field(Integer(), "Traces."), "head": Field(DIGEST, "The chain of the last line.")}),
            "The attempt came to its end.",
        ),
        "anatomy-chosen": Field(Table({"chosen": Field(DIGEST, "It.")}), "A signal and layer were chosen on one half."),
        "anatomy-judged": Field(Table({"verdict": Field(DIGEST, "It.")}), "The test on the other half was written."),
    }
)
_DOCUMENT = {
    "lock": Field(DIGEST, "The lock."),
    "traces": Field(HEAD, "The number of trace lines that it was computed from, and the chain of the last of them."),
    "ledger": Field(HEAD, "The ledger's head before it."),
}
CHOSEN = replace(declare_document("anatomy, chosen", _DOCUMENT), allow_extra=True)
VERDICT = replace(
    declare_document("anatomy, verdict", {**_DOCUMENT, "chosen": Field(DIGEST, "Digest of anatomy/chosen.json.")}),
    allow_extra=True,
)


def find_fault(body: Any, index: int = 0) -> str | None:
    """Return the fault of a line's `body`, beginning with the field; else None. index: of any line."""
    state = body.get("state") if isinstance(body, Mapping) else None
    kind = TRACE if state in MEASURED else _FAILED_TRACE if state == "failed" else _UNLABELLED
    if wrong := fields.find_fault(kind, body, "body"):
        return wrong
    if bool(body["reason"]) == (state == "labelled"):
        return f"body.reason: must {'be empty' if state == 'labelled' else 'give a reason'} in the state {state!r}"
    if ("chosen" in body) != (body["half"] == "test"):
        return "body.chosen: must be present in the testing half, and only there"
    return None
