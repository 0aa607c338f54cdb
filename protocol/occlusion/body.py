"""One trace, occluded in every way: the line that a study records of it, and the values that it cites."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeAlias

from torch import Tensor

from policies.oracle import given
from protocol import engine
from protocol.evidence.refusals import BadInput
from protocol.locked.planned import Planned
from protocol.models.load import LoadedModel
from protocol.occlusion import layer_statistics, occluded, traces
from protocol.occlusion.scorings import Arm, Asking, arms, oracles
from protocol.occlusion.traces import Decoder, Graded, Trace
from protocol.occlusion.values import packed
from protocol.occlusion.windows import CORRECT, Occlude, Reading, Span, priorities, span_of, windows
from protocol.tasks import prompting

__all__ = ["Settings", "Traced", "traced"]

UNGRADED: Mapping[str, str] = MappingProxyType(
    {
        "error": "the grader could not grade the answer",
        "scored": "the grader of the task gives scores, which are not right or wrong",
    }
)
UNMOVED = "no occlusion changed the grade in the registered reading"

Said: TypeAlias = Graded | str
"""A continuation, or why there is none."""


class Unlabelled(Exception):
    """Why a trace has no labels."""


class Settings(Protocol):
    """Of `[anatomy]`, those that one trace is occluded by."""

    @property
    def window(self) -> int: ...
    @property
    def stride(self) -> int: ...
    @property
    def reading(self) -> Reading: ...
    @property
    def occlude(self) -> Occlude: ...
    @property
    def boundary(self) -> str | None: ...
    @property
    def tail(self) -> int | None: ...
    @property
    def cut(self) -> Decimal: ...
    @property
    def new_tokens(self) -> int: ...


class Traced(NamedTuple):
    """body: of a line, without "half". values: bytes of the side file that it cites, if it cites one."""

    body: dict[str, Any]
    values: bytes


def traced(
    planned: Planned,
    model: LoadedModel,
    task: str,
    problem: str,
    settings: Settings,
    lanes: int | None = None,
) -> Traced:
    """Trace a development problem, occlude it, ask every arm. `running.measured.ready` comes before it.

    task: as the study calls it. lanes: how many decode at once; None for what the free memory holds. Greedy
    throughout. Raises as `door.build` and `engine.run` do: what a policy refuses is in the body.
    """
    registered = next(one for one in planned.protocol.tasks if one.name == task)
    built, prompt = traces.posed(planned, model, registered, problem)
    decode, grade = traces.decoder(planned, model, lanes), traces.grading_of(planned, registered, built)
    head = {
        "model": model.name,
        "task": task,
        "problem": problem,
        "prompt": prompting.digest(prompt.context, prompt.query),
        "prompt_tokens": prompt.tokens,
    }
    if reason := planned.protocol.excludes(len(prompt.context)):
        return Traced(head | stated("failed", reason), b"")
    trace = traces.traced(decode, built, prompt, registered.max_new_tokens, grade)
    body = head | {"text": trace.graded.text, "grade": trace.graded.grade}
    if trace.refused:
        return Traced(head | stated("failed", trace.refused), b"")
    if trace.graded.grade in ("error", "scored"):
        return Traced(body | stated("failed", UNGRADED[trace.graded.grade]), b"")
    if trace.graded.grade != CORRECT:
        return Traced(body | stated("wrong", f"graded {trace.graded.grade} with its whole cache"), b"")
    reasoning = traces.reasoning_of(model, trace.token_ids, settings.boundary, settings.tail)
    span = span_of(
        settings.occlude, len(prompt.context), len(prompt.query), reasoning, Fraction(settings.cut)
    )
    body |= {"tokens": span.tokens, "span": [span.start, span.stop]}
    found = windows(span, settings.window, settings.stride)
    if not found:
        held = span.stop - span.start
        return Traced(body | stated("short", f"{held} tokens, and a window has {settings.window}"), b"")
    return Occluding(planned, decode, grade, settings, task, trace, span, found).traced(body)


@dataclass(frozen=True)
class Occluding:
    """A trace that was answered correctly, and where its windows lie."""

    planned: Planned
    decode: Decoder
    grade: traces.Grading
    settings: Settings
    task: str
    trace: Trace
    span: Span
    windows: tuple[range, ...]

    @property
    def token_ids(self) -> tuple[int, ...]:
        """All that is fed before the continuation."""
        return (self.trace.fed + self.trace.token_ids)[: self.span.tokens]

    @property
    def prompt(self) -> engine.Prompt:
        written = self.span.tokens - self.trace.prompt.tokens
        return engine.Prompt(self.token_ids[: self.span.event], self.token_ids[self.span.event :], written)

    def traced(self, body: dict[str, Any]) -> Traced:
        name, context = self.decode.model.name, len(self.trace.prompt.context)
        asking = Asking(arms(self.planned, name, self.task, context))
        try:
            control, dropped, asked = self.beside(asking)
            as_it_is, padded = self.fed_anew()
            body |= {"control": control._asdict()}
            for reading, one in (("in a lane", control), ("fed anew", as_it_is)):
                if one.grade != CORRECT:
                    reason = f"with nothing occluded, {reading}, the continuation is graded {one.grade}"
                    return Traced(body | stated("unreproduced", reason), b"")
            labels = {"padded": padded, "dropped": dropped}
            reached = self.reached(labels[self.settings.reading])
        except Unlabelled as refused:
            return Traced(body | stated("failed", str(refused)), b"")
        ran = [(arm, asked.get(at, arm.refused)) for at, arm in enumerate(asking.arms)]
        shares = [asking.kept(place, self.span.tokens) for place in range(len(ran))]
        ran += [(arm, did) for arm, did, _ in reached]
        shares += [share for *_, share in reached]
        signals = layer_statistics.rows(
            self.decode.model, self.token_ids, self.trace.prompt.tokens, self.decode.prefill_chunk
        )
        signals += asking.scored(self.span.tokens)
        values = packed([*(row.values for row in signals), *shares])
        moved = any(grade != CORRECT for *_, grade in labels[self.settings.reading])
        state = stated("labelled" if moved else "unmoved", "" if moved else UNMOVED)
        cited = {
            "sha256": hashlib.sha256(values).hexdigest(),
            "signals": [[row.name, row.layer] for row in signals],
            "kept": len(shares),
        }
        pieces = [self.decode.text([token]) for token in self.token_ids]
        body |= {"pieces": pieces, "windows": labels, "values": cited}
        body["kept"] = [entry(*one) for one in ran]
        return Traced(body | state, values)

    def beside(self, asking: Asking) -> tuple[Graded, list[list[Any]], dict[int, Said]]:
        """What follows with nothing dropped, with each window dropped, and under each arm: one prefill."""
        asked, count = asking.lanes(), len(self.windows)
        lanes = (traces.control(), *occluded.dropping(self.span.event, self.windows))
        try:
            control, *others = self.said_by((*lanes, *asked.values()))
        except BadInput:  # of some arm, or of the model, of which each lane alone says it
            control, *others = self.said_by(lanes)
            others += map(self.alone, asked.values())
        return sure(control), self.found(others[:count]), dict(zip(asked, others[count:], strict=True))

    def alone(self, lane: engine.Lane) -> Said:
        """Why, of an arm that does not fit the model, or feeds more tokens than it has positions."""
        try:
            return self.said_by([lane])[0]
        except BadInput as refusal:
            return str(refusal)

    def fed_anew(self) -> tuple[Graded, list[list[Any]]]:
        """What follows the text fed anew as it is, and with each window padded."""
        whole = range(self.span.tokens, self.span.tokens)
        pad, new_tokens = occluded.padding(self.decode.model), self.settings.new_tokens
        fed = occluded.padded(self.decode, self.token_ids, (*self.windows, whole), pad, new_tokens)
        *padded, as_it_is = (one.refused or self.said(one.token_ids) for one in fed)
        return sure(as_it_is), self.found(padded)

    def reached(self, labels: Sequence[Sequence[Any]]) -> list[tuple[Arm, Said, Tensor]]:
        """What the labels keep at every budget, what follows, and the shares."""
        own = oracles(self.planned, self.decode.model.name, self.task, len(self.trace.prompt.context))
        asking = Asking(
            [arm._replace(policy=given(priorities(self.span.event, labels, arm.slots or 0))) for arm in own]
        )
        said = self.said_by(tuple(asking.lanes().values()))
        shares = (asking.kept(place, self.span.tokens) for place in range(len(said)))
        return list(zip(asking.arms, said, shares, strict=True))

    def said_by(self, lanes: Sequence[engine.Lane]) -> list[Said]:
        outcomes = self.decode.run(self.trace.problem.id, self.prompt, lanes, self.settings.new_tokens)
        return [
            one.reason if isinstance(one, engine.LaneFailure) else self.said(one.token_ids)
            for one in outcomes
        ]

    def said(self, token_ids: Sequence[int]) -> Said:
        """A continuation alone is graded: what was written before the cut may hold an answer of its own."""
        graded = self.grade(self.decode.text(token_ids))
        return UNGRADED["error"] if graded.grade == "error" else graded

    def found(self, said: Iterable[Said]) -> list[list[Any]]:
        """As a record has windows."""
        every = zip(self.windows, map(sure, said), strict=True)
        return [[own.start, own.stop, one.text, one.grade] for own, one in every]


def sure(said: Said) -> Graded:
    """Raises Unlabelled where there is none."""
    if isinstance(said, str):
        raise Unlabelled(said)
    return said


def stated(state: str, reason: str) -> dict[str, str]:
    return {"state": state, "reason": reason}


def entry(arm: Arm, said: Said) -> dict[str, Any]:
    """As a record has what an arm kept; "needed" is told apart from it, by who reads the labels."""
    found: dict[str, Any] = {"arm": arm.name, "budget": arm.budget, "slots": arm.slots, "needed": None}
    return found | (stated("failed", said) if isinstance(said, str) else said._asdict())
