"""The record of one occluded trace, and the values that it cites."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeAlias

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
from protocol.plan.task import Task
from protocol.tasks import prompting

__all__ = ["Settings", "Traced", "traced", "traced_together"]

UNGRADED: Mapping[str, str] = MappingProxyType(
    {
        "error": "the grader could not grade the answer",
        "scored": "the grader of the task gives scores, which are not right or wrong",
    }
)
UNMOVED = "no occlusion changed the grade in the registered reading"

ROWS, AHEAD = 128, 32
"""The number of windows above which a larger batch is hardly cheaper for each; answers decoded at once."""

Said: TypeAlias = Graded | str
"""A graded continuation, or the reason why there is none."""


class Unlabelled(Exception):
    """Raised with the reason why a trace has no labels."""


class Settings(Protocol):
    """The settings of `[anatomy]` that define the occlusion of one trace."""

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
    """body: of a record, without "half". values: bytes of the side file that it cites, if it cites one."""

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
    """Run `occlude_traces` on one problem."""
    (found,) = traced_together(planned, model, task, [problem], settings, lanes)
    return found


def traced_together(
    planned: Planned,
    model: LoadedModel,
    task: str,
    problems: Sequence[str],
    settings: Settings,
    lanes: int | None = None,
) -> Iterator[Traced]:
    """Trace development problems, occlude each trace and run every arm; yield records in the order of the
    problems. Call `running.measured.ready` first.

    BATCH_ANSWERS answers are decoded in one batch, then as many of them are occluded in one batch as have
    BATCH_WINDOWS windows: the batch composition is a function of the arguments. In another batch composition
    a record is the same up to the rounding of the dtype.

    task: its name in the study. lanes: how many decode at once; None for what fits in the free memory.
    Decoding is greedy. Raises as the held-out guard's `build` and `engine.run` do: refusals of a policy are
    recorded in the body.
    """
    registered = next(one for one in planned.protocol.tasks if one.name == task)
    decode, waiting = traces.decoder(planned, model, lanes), list[Traced | Occluding]()
    for first in range(0, len(problems), AHEAD):
        for one in begun(planned, decode, registered, problems[first : first + AHEAD], settings):
            waiting.append(one)
            if sum(len(own.windows) for own in waiting if isinstance(own, Occluding)) >= ROWS:
                yield from labelled(waiting)
                waiting = []
    yield from labelled(waiting)


def begun(
    planned: Planned, decode: Decoder, task: Task, problems: Sequence[str], settings: Settings
) -> Iterator[Traced | Occluding]:
    """Yield the traces of these problems to occlude, or the records of the others, in their order."""
    model = decode.model
    posed = [traces.posed(planned, model, task, problem) for problem in problems]
    excluded = [planned.protocol.excludes(len(own.prompt.context)) for own in posed]
    asked = [own for own, reason in zip(posed, excluded, strict=True) if not reason]
    decoded = iter(traces.traced(decode, asked, task.max_new_tokens) if asked else ())
    for problem, (_, prompt, grade), reason in zip(problems, posed, excluded, strict=True):
        head = {
            "model": model.name,
            "task": task.name,
            "problem": problem,
            "prompt": prompting.digest(prompt.context, prompt.query),
            "prompt_tokens": prompt.tokens,
        }
        if reason:
            yield Traced(head | stated("failed", reason), b"")
            continue
        yield occluding(planned, decode, task, settings, next(decoded), grade, head)


def occluding(
    planned: Planned,
    decode: Decoder,
    task: Task,
    settings: Settings,
    trace: Trace,
    grade: traces.Grading,
    head: dict[str, Any],
) -> Traced | Occluding:
    body = head | {"text": trace.graded.text, "grade": trace.graded.grade}
    if trace.refused:
        return Traced(head | stated("failed", trace.refused), b"")
    if trace.graded.grade in ("error", "scored"):
        return Traced(body | stated("failed", UNGRADED[trace.graded.grade]), b"")
    if trace.graded.grade != CORRECT:
        return Traced(body | stated("wrong", f"graded {trace.graded.grade} with its whole cache"), b"")
    prompt = trace.prompt
    reasoning = traces.reasoning_of(decode.model, trace.token_ids, settings.boundary, settings.tail)
    span = span_of(
        settings.occlude, len(prompt.context), len(prompt.query), reasoning, Fraction(settings.cut)
    )
    body |= {"tokens": span.tokens, "span": [span.start, span.stop]}
    found = windows(span, settings.window, settings.stride)
    if not found:
        held = span.stop - span.start
        return Traced(body | stated("short", f"{held} tokens, and a window has {settings.window}"), b"")
    asking = Asking(arms(planned, decode.model.name, task.name, len(prompt.context)))
    return Occluding(planned, decode, grade, settings, task.name, trace, span, found, asking, body)


class Labels(NamedTuple):
    """The continuation without occlusion, and the rows of windows by reading as a record stores them."""

    control: Graded
    windows: dict[str, list[list[Any]]]


@dataclass(frozen=True)
class Occluding:
    """A trace with a correct answer and its windows. body: of its record so far."""

    planned: Planned
    decode: Decoder
    grade: traces.Grading
    settings: Settings
    task: str
    trace: Trace
    span: Span
    windows: tuple[range, ...]
    asking: Asking
    body: dict[str, Any]

    @property
    def token_ids(self) -> tuple[int, ...]:
        """All tokens fed before the continuation."""
        return (self.trace.fed + self.trace.token_ids)[: self.span.tokens]

    @property
    def prompt(self) -> engine.Prompt:
        written = self.span.tokens - self.trace.prompt.tokens
        return engine.Prompt(self.token_ids[: self.span.event], self.token_ids[self.span.event :], written)

    @property
    def text(self) -> occluded.Text:
        """Its windows, and an empty window for the full text."""
        return occluded.Text(self.token_ids, (*self.windows, range(self.span.tokens, self.span.tokens)))

    @property
    def lanes(self) -> tuple[engine.Lane, ...]:
        """The lane of the full cache, then one lane for each window."""
        return (traces.control(), *occluded.dropping(self.span.event, self.windows))

    def request(self, lanes: Iterable[engine.Lane]) -> engine.Request:
        return engine.Request(self.trace.problem.id, self.prompt, tuple(lanes))

    def labels(self, in_lanes: Sequence[Said], anew: Sequence[Said]) -> Labels:
        """Return the labels from the outcomes of `lanes` and of `text`. Raises Unlabelled if one has no
        continuation.
        """
        control, *dropped = in_lanes
        *padded, _ = anew
        return Labels(sure(control), {"padded": self.found(padded), "dropped": self.found(dropped)})

    def unreproduced(self, in_a_lane: Said, fed_anew: Said) -> str:
        """Return why the answer of the trace is not reproduced; empty if it is."""
        for reading, one in (("in a lane", in_a_lane), ("fed anew", fed_anew)):
            if (own := sure(one)).grade != CORRECT:
                return f"with nothing occluded, {reading}, the continuation is graded {own.grade}"
        return ""

    def oracle(self, labels: Labels) -> Asking:
        """Return the oracle arms, which keep slots by the labels of the registered reading, at every budget.
        """
        found, event = labels.windows[self.settings.reading], self.span.event
        own = oracles(self.planned, self.decode.model.name, self.task, len(self.trace.prompt.context))
        return Asking([arm._replace(policy=given(priorities(event, found, arm.slots or 0))) for arm in own])

    def line(
        self, labels: Labels, asked: Mapping[int, Said], oracle: Asking, reached: Mapping[int, Said]
    ) -> Traced:
        ran = [
            (arm, did.get(at, arm.refused))
            for asking, did in ((self.asking, asked), (oracle, reached))
            for at, arm in enumerate(asking.arms)
        ]
        shares = [
            asking.kept(place, self.span.tokens)
            for asking in (self.asking, oracle)
            for place in range(len(asking.arms))
        ]
        signals = layer_statistics.rows(
            self.decode.model, self.token_ids, self.trace.prompt.tokens, self.decode.prefill_chunk
        )
        signals += self.asking.scored(self.span.tokens)
        values = packed([*(row.values for row in signals), *shares])
        moved = any(grade != CORRECT for *_, grade in labels.windows[self.settings.reading])
        state = stated("labelled" if moved else "unmoved", "" if moved else UNMOVED)
        body = self.body | {
            "control": labels.control._asdict(),
            "pieces": [self.decode.text([token]) for token in self.token_ids],
            "windows": labels.windows,
            "kept": [entry(*one) for one in ran],
            "values": {
                "sha256": hashlib.sha256(values).hexdigest(),
                "signals": [[row.name, row.layer] for row in signals],
                "kept": len(shares),
            },
        }
        return Traced(body | state, values)

    def said(self, one: engine.Outcome | engine.LaneFailure | occluded.Continued) -> Said:
        """Grade a continuation alone: the text before the cut may contain another answer."""
        if isinstance(one, engine.LaneFailure):
            return one.reason
        if isinstance(one, occluded.Continued) and one.refused:
            return one.refused
        graded = self.grade(self.decode.text(one.token_ids))
        return UNGRADED["error"] if graded.grade == "error" else graded

    def found(self, said: Iterable[Said]) -> list[list[Any]]:
        """Return the rows of windows as a record stores them."""
        every = zip(self.windows, map(sure, said), strict=True)
        return [[own.start, own.stop, one.text, one.grade] for own, one in every]


def labelled(waiting: Sequence[Traced | Occluding]) -> Iterator[Traced]:
    """Yield the records in order; all windows of the traces to occlude are in one batch."""
    group = [one for one in waiting if isinstance(one, Occluding)]
    made = iter(occluded_together(group) if group else ())
    for one in waiting:
        yield next(made) if isinstance(one, Occluding) else one


def occluded_together(group: Sequence[Occluding]) -> list[Traced]:
    decode, new_tokens = group[0].decode, group[0].settings.new_tokens
    asked, in_lanes = beside(group)
    fed = occluded.padded(decode, [one.text for one in group], occluded.padding(decode.model), new_tokens)
    found: list[Traced | Labels] = []
    for one, dropped, anew in zip(group, in_lanes, fed, strict=True):
        padded = list(map(one.said, anew))
        try:
            labels = one.labels(dropped, padded)
            reason = one.unreproduced(dropped[0], padded[-1])
        except Unlabelled as refused:
            found.append(Traced(one.body | stated("failed", str(refused)), b""))
            continue
        if reason:
            body = one.body | {"control": labels.control._asdict()}
            found.append(Traced(body | stated("unreproduced", reason), b""))
        else:
            found.append(labels)
    reproduced = [
        (one, labels) for one, labels in zip(group, found, strict=True) if isinstance(labels, Labels)
    ]
    oracles = [one.oracle(labels) for one, labels in reproduced]
    reached = ran([one for one, _ in reproduced], [oracle.lanes() for oracle in oracles])
    whole = dict(zip((id(one) for one, _ in reproduced), zip(oracles, reached, strict=True), strict=True))
    return [
        one.line(labels, did, *whole[id(one)]) if isinstance(labels, Labels) else labels
        for one, labels, did in zip(group, found, asked, strict=True)
    ]


def beside(group: Sequence[Occluding]) -> tuple[list[dict[int, Said]], list[list[Said]]]:
    """Return the continuations of each trace under each arm, by index; and those with nothing dropped and
    with each window dropped. One prefill for each trace, and one batch.
    """
    asked = [one.asking.lanes() for one in group]
    own = [{-1 - at: lane for at, lane in enumerate(one.lanes)} for one in group]
    try:
        said = ran(group, [lanes | others for lanes, others in zip(own, asked, strict=True)])
    except BadInput:  # of some arm, or of the model; the lanes are run alone to find which
        said = ran(group, own)
        for place in asked[0]:
            alone = [{place: others[place]} for others in asked]
            for found, did in zip(said, refused_alone(group, alone), strict=True):
                found |= did
    return (
        [{place: did[place] for place in others} for others, did in zip(asked, said, strict=True)],
        [[did[place] for place in lanes] for lanes, did in zip(own, said, strict=True)],
    )


def refused_alone(
    group: Sequence[Occluding], lanes: Sequence[Mapping[int, engine.Lane]]
) -> list[dict[int, Said]]:
    """Return why an arm is refused: it does not fit the model, or feeds more tokens than the model has
    positions.
    """
    try:
        return ran(group, lanes)
    except BadInput as refusal:
        if len(group) > 1:
            return [refused_alone([one], [own])[0] for one, own in zip(group, lanes, strict=True)]
        return [dict.fromkeys(lanes[0], str(refusal))]


def ran(group: Sequence[Occluding], lanes: Sequence[Mapping[int, engine.Lane]]) -> list[dict[int, Said]]:
    """Return the continuation in each lane of each trace, by index."""
    if not any(lanes):
        return [{} for _ in group]
    requests = [one.request(own.values()) for one, own in zip(group, lanes, strict=True)]
    outcomes = group[0].decode.run(requests, group[0].settings.new_tokens)
    return [
        dict(zip(own, map(one.said, did), strict=True))
        for one, own, did in zip(group, lanes, outcomes, strict=True)
    ]


def sure(said: Said) -> Graded:
    """Return the continuation. Raises Unlabelled if there is none."""
    if isinstance(said, str):
        raise Unlabelled(said)
    return said


def stated(state: str, reason: str) -> dict[str, str]:
    return {"state": state, "reason": reason}


def entry(arm: Arm, said: Said) -> dict[str, Any]:
    """Return what an arm kept as a record stores it; "needed" is computed later, from the labels."""
    found: dict[str, Any] = {"arm": arm.name, "budget": arm.budget, "slots": arm.slots, "needed": None}
    return found | (stated("failed", said) if isinstance(said, str) else said._asdict())
