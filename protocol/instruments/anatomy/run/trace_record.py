"""The record of one occluded trace, and the values that it cites."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from policies.oracle import oracle_policy
from protocol import engine
from protocol.formats.refusals import BadInput
from protocol.instruments.anatomy.fields import CORRECT
from protocol.instruments.anatomy.run import answer_attention, continuations, layer_statistics, traces
from protocol.instruments.anatomy.run.arm_probes import Arm, ArmProbes, oracle_arms, study_arms
from protocol.instruments.anatomy.run.layer_statistics import StatisticRow
from protocol.instruments.anatomy.run.traces import Decoder, Graded, Trace
from protocol.instruments.anatomy.slip import thought_sets
from protocol.instruments.anatomy.table import Occlusion
from protocol.instruments.anatomy.windows import Span, oracle_priorities, span_of, windows
from protocol.models.load import LoadedModel
from protocol.plan.task import Task
from protocol.tasks import prompting
from protocol.workspace.planned_study import PlannedStudy

UNGRADED: Mapping[str, str] = MappingProxyType(
    {
        "error": "the grader could not grade the answer",
        "scored": "the grader of the task gives scores, which are not right or wrong",
    }
)
BITS = 12
"""Significant bits of a stored number, so that rows compress well: a precision of at least one part in 4,096."""
UNMOVED = "no occlusion changed the grade in the registered reading"

BATCH_WINDOWS, BATCH_ANSWERS = 128, 32
"""The number of windows above which a larger batch is hardly cheaper for each; answers decoded at once."""

Continuation: TypeAlias = Graded | str
"""A graded continuation, or the reason why there is none."""


class Unlabelled(Exception):
    """Raised with the reason why a trace has no labels."""


class TraceLine(NamedTuple):
    """body: of a record, without "half". values: bytes of the side file that it cites, if it cites one."""

    body: dict[str, Any]
    values: bytes


def occlude_trace(
    planned: PlannedStudy, model: LoadedModel, task: str, problem: str, settings: Occlusion, lanes: int | None = None
) -> TraceLine:
    """Run `occlude_traces` on one problem."""
    (line,) = occlude_traces(planned, model, task, [problem], settings, lanes)
    return line


def occlude_traces(
    planned: PlannedStudy,
    model: LoadedModel,
    task: str,
    problems: Sequence[str],
    settings: Occlusion,
    lanes: int | None = None,
) -> Iterator[TraceLine]:
    """Trace development problems, occlude each trace and run every arm; yield records in the order of the
    problems. Call `running.measured.ready` first.

    BATCH_ANSWERS answers are decoded in one batch, then as many of them are occluded in one batch as have
    BATCH_WINDOWS windows: the batch composition is a function of the arguments. In another batch composition
    a record is the same up to the rounding of the dtype.

    task: its name in the study. lanes: how many decode at once; None for what fits in the free memory. Raises as the
    held-out guard's `build` and `engine.run` do: refusals of a policy are recorded in the body.
    """
    registered = next(candidate for candidate in planned.protocol.tasks if candidate.name == task)
    decode = traces.make_decoder(planned, model, lanes, is_sampled=settings.sampled)
    waiting = list[TraceLine | OccludedTrace]()
    for first in range(0, len(problems), BATCH_ANSWERS):
        for candidate in begin_traces(planned, decode, registered, problems[first : first + BATCH_ANSWERS], settings):
            waiting.append(candidate)
            if sum(len(pending.windows) for pending in waiting if isinstance(pending, OccludedTrace)) >= BATCH_WINDOWS:
                yield from finish_lines(waiting)
                waiting = []
    yield from finish_lines(waiting)


def begin_traces(
    planned: PlannedStudy, decode: Decoder, task: Task, problems: Sequence[str], settings: Occlusion
) -> Iterator[TraceLine | OccludedTrace]:
    """Yield the traces of these problems to occlude, or the records of the others, in their order."""
    model = decode.model
    posed = [traces.pose_problem(planned, model, task, problem) for problem in problems]
    excluded = [planned.protocol.exclusion_reason(len(posed_problem.prompt.context)) for posed_problem in posed]
    included = [posed_problem for posed_problem, reason in zip(posed, excluded, strict=True) if not reason]
    decoded = iter(traces.decode_traces(decode, included, task.max_new_tokens) if included else ())
    for problem, (_, prompt, grade), reason in zip(problems, posed, excluded, strict=True):
        head = {
            "model": model.name,
            "task": task.name,
            "problem": problem,
            "prompt": prompting.digest(prompt.context, prompt.query),
            "prompt_tokens": prompt.tokens,
        }
        if reason:
            yield TraceLine(head | state_fields("failed", reason), b"")
            continue
        yield begin_occlusion(planned, decode, task, settings, next(decoded), grade, head)


def begin_occlusion(
    planned: PlannedStudy,
    decode: Decoder,
    task: Task,
    settings: Occlusion,
    trace: Trace,
    grade: traces.Grading,
    head: dict[str, Any],
) -> TraceLine | OccludedTrace:
    body = head | {"text": trace.graded.text, "grade": trace.graded.grade}
    if trace.refused:
        return TraceLine(head | state_fields("failed", trace.refused), b"")
    if trace.graded.grade in UNGRADED:
        return TraceLine(body | state_fields("failed", UNGRADED[trace.graded.grade]), b"")
    is_wrong = trace.graded.grade != CORRECT
    if is_wrong:
        body |= state_fields("wrong", f"graded {trace.graded.grade} with its whole cache")
        if settings.slip is None:
            return TraceLine(body, b"")
    prompt = trace.prompt
    reasoning = traces.reasoning_length(decode.model, trace.token_ids, settings.boundary, settings.tail)
    span = span_of(settings.occlude, len(prompt.context), len(prompt.query), reasoning, Fraction(settings.cut))
    body |= {"tokens": span.tokens, "span": [span.start, span.stop]}
    window_ranges = () if is_wrong else windows(span, settings.window, settings.stride)
    slip = settings.slip and measure_slip(decode, trace, span, settings.slip)
    if is_wrong and not slip:
        return TraceLine(body, b"")
    if not window_ranges and not is_wrong:
        n_tokens = span.stop - span.start
        return TraceLine(body | state_fields("short", f"{n_tokens} tokens, and a window has {settings.window}"), b"")
    arms = [] if is_wrong else study_arms(planned, decode.model.name, task.name, len(prompt.context))
    probes = ArmProbes(arms)
    return OccludedTrace(
        planned, decode, grade, settings, task.name, trace, span, window_ranges, probes, body, slip or None
    )


class SlipSets(NamedTuple):
    """answer: its tokens. rows: of SLIP_SIGNALS. dropped: by name, the positions of each set."""

    answer: int
    rows: list[StatisticRow]
    dropped: Mapping[str, frozenset[int]]


def measure_slip(decode: Decoder, trace: Trace, span: Span, share: Decimal) -> SlipSets | None:
    """Return the sets of the thought that are dropped; None without an answer or with too short a thought."""
    token_ids, prompt = trace.fed_tokens + trace.token_ids, trace.prompt.tokens
    if len(token_ids) == span.tokens or int(share * (span.event - prompt)) <= 0:  # a question may be left to feed
        return None
    thought = range(prompt, span.tokens)
    rows = answer_attention.measure_answer_attention(decode.model, token_ids, thought, decode.prefill_chunk)
    attention = round_values(rows[0].values.numpy()).tolist()
    dropped = thought_sets(trace.problem.id, attention, prompt, span.event, share)
    return SlipSets(len(token_ids) - span.tokens, rows, dropped)


class Labels(NamedTuple):
    """The full continuation, the rows of windows by reading, as recorded, and the continuations without each set."""

    control: Graded
    windows: dict[str, list[list[Any]]]
    slip: dict[str, Graded]


@dataclass(frozen=True)
class OccludedTrace:
    """A trace with a correct answer and its windows, or one with a wrong answer and none. body: of its record so far.
    slip: None where none is registered, or there is none.
    """

    planned: PlannedStudy
    decode: Decoder
    grade: traces.Grading
    settings: Occlusion
    task: str
    trace: Trace
    span: Span
    windows: tuple[range, ...]
    probes: ArmProbes
    body: dict[str, Any]
    slip: SlipSets | None = None

    @property
    def token_ids(self) -> tuple[int, ...]:
        """All tokens fed before the continuation."""
        return (self.trace.fed_tokens + self.trace.token_ids)[: self.span.tokens]

    @property
    def written(self) -> int:
        """The number of tokens before the continuation that the model wrote."""
        return self.span.tokens - self.trace.prompt.tokens

    @property
    def prompt(self) -> engine.Prompt:
        return engine.Prompt(self.token_ids[: self.span.event], self.token_ids[self.span.event :], self.written)

    @property
    def text(self) -> continuations.OccludedText:
        """Its windows, and an empty window for the full text."""
        places = (*self.windows, range(self.span.tokens, self.span.tokens))
        return continuations.OccludedText(self.token_ids, places, self.trace.problem.id, self.written)

    @property
    def lanes(self) -> tuple[engine.Lane, ...]:
        """The lane of the full cache, then one lane for each window and each set of the thought."""
        dropped = [*self.windows, *(self.slip.dropped.values() if self.slip else ())]
        return (traces.full_cache_lane(), *continuations.dropping_lanes(self.span.event, dropped))

    def request(self, lanes: Iterable[engine.Lane]) -> engine.Request:
        return engine.Request(self.trace.problem.id, self.prompt, tuple(lanes))

    def labels(self, in_lanes: Sequence[Continuation], refed: Sequence[Continuation]) -> Labels:
        """Return the labels from the outcomes of `lanes` and of `text`. Raises Unlabelled without a continuation."""
        control, *dropped = in_lanes
        *padded, _ = refed
        count = len(self.windows)
        rows = {"padded": self.window_rows(padded), "dropped": self.window_rows(dropped[:count])}
        slip = zip(self.slip.dropped if self.slip else (), map(require_graded, dropped[count:]), strict=True)
        return Labels(require_graded(control), rows, dict(slip))

    def explain_unreproduced(self, in_a_lane: Continuation, refed: Continuation) -> str:
        """Return why the answer of the trace is not reproduced; empty if it is."""
        for reading, continuation in (("in a lane", in_a_lane), ("fed anew", refed)):
            if (graded := require_graded(continuation)).grade != self.trace.graded.grade:
                return f"with nothing occluded ({reading}), the continuation is graded {graded.grade}"
        return ""

    def oracle_probes(self, labels: Labels) -> ArmProbes:
        """Return the oracle at every budget, by labels of the registered reading; none for a trace without windows."""
        if not self.windows:
            return ArmProbes([])
        window_rows, event = labels.windows[self.settings.reading], self.span.event
        arms = oracle_arms(self.planned, self.decode.model.name, self.task, len(self.trace.prompt.context))
        priorities = [oracle_priorities(event, window_rows, arm.slots or 0) for arm in arms]
        return ArmProbes(
            [arm._replace(policy=oracle_policy(first)) for arm, first in zip(arms, priorities, strict=True)]
        )

    def build_line(
        self,
        labels: Labels,
        arm_results: Mapping[int, Continuation],
        oracle: ArmProbes,
        oracle_results: Mapping[int, Continuation],
    ) -> TraceLine:
        outcomes = [
            (arm, results.get(number, arm.refused))
            for probes, results in ((self.probes, arm_results), (oracle, oracle_results))
            for number, arm in enumerate(probes.arms)
        ]
        shares = [
            probes.retained_shares(index, self.span.tokens)
            for probes in (self.probes, oracle)
            for index in range(len(probes.arms))
        ]
        signals = layer_statistics.measure_layers(
            self.decode.model, self.token_ids, self.trace.prompt.tokens, self.decode.prefill_chunk
        )
        signals += self.slip.rows if self.slip else []
        signals += self.probes.score_rows(self.span.tokens)
        values = pack_rows([*(row.values for row in signals), *shares])
        body = self.body | {
            "control": labels.control._asdict(),
            "pieces": [self.decode.text([token]) for token in self.token_ids],
            "values": {
                "sha256": hashlib.sha256(values).hexdigest(),
                "signals": [[row.name, row.layer] for row in signals],
                "kept": len(shares),
            },
        }
        if self.slip:
            graded = {name: continuation._asdict() for name, continuation in labels.slip.items()}
            body |= {"slip": {"answer": self.slip.answer, **graded}}
        if self.windows:
            moved = any(grade != CORRECT for *_, grade in labels.windows[self.settings.reading])
            body |= {"windows": labels.windows, "kept": [arm_entry(*outcome) for outcome in outcomes]}
            body |= state_fields("labelled" if moved else "unmoved", "" if moved else UNMOVED)
        return TraceLine(body, values)

    def grade_outcome(self, outcome: engine.Outcome | engine.LaneFailure | continuations.Continuation) -> Continuation:
        """Grade a continuation alone: the text before the cut may contain another answer."""
        if isinstance(outcome, engine.LaneFailure):
            return outcome.reason
        if isinstance(outcome, continuations.Continuation) and outcome.refused:
            return outcome.refused
        graded = self.grade(self.decode.text(outcome.token_ids))
        return UNGRADED["error"] if graded.grade == "error" else graded

    def window_rows(self, continuations: Iterable[Continuation]) -> list[list[Any]]:
        """Return the rows of windows as a record stores them."""
        pairs = zip(self.windows, map(require_graded, continuations), strict=True)
        return [[window.start, window.stop, continuation.text, continuation.grade] for window, continuation in pairs]


def finish_lines(waiting: Sequence[TraceLine | OccludedTrace]) -> Iterator[TraceLine]:
    """Yield the records in order; all windows of the traces to occlude are in one batch."""
    group = [trace for trace in waiting if isinstance(trace, OccludedTrace)]
    finished = iter(occlude_batch(group) if group else ())
    for trace in waiting:
        yield next(finished) if isinstance(trace, OccludedTrace) else trace


def occlude_batch(group: Sequence[OccludedTrace]) -> list[TraceLine]:
    decode, new_tokens = group[0].decode, group[0].settings.new_tokens
    arm_results, in_lanes = decode_lanes(group)
    fed = continuations.continue_padded(
        decode, [trace.text for trace in group], continuations.padding_token(decode.model), new_tokens
    )
    results: list[TraceLine | Labels] = []
    for trace, dropped, refed in zip(group, in_lanes, fed, strict=True):
        padded = list(map(trace.grade_outcome, refed))
        try:
            labels = trace.labels(dropped, padded)
            reason = trace.explain_unreproduced(dropped[0], padded[-1])
        except Unlabelled as refusal:
            results.append(TraceLine(trace.body | state_fields("failed", str(refusal)), b""))
            continue
        if reason:
            body = trace.body | {"control": labels.control._asdict()}
            state = {} if "state" in body else state_fields("unreproduced", reason)  # a wrong one stays wrong
            results.append(TraceLine(body | state, b""))
        else:
            results.append(labels)
    reproduced = [(trace, labels) for trace, labels in zip(group, results, strict=True) if isinstance(labels, Labels)]
    oracles = [trace.oracle_probes(labels) for trace, labels in reproduced]
    reached = run_lanes([trace for trace, _ in reproduced], [oracle.lanes() for oracle in oracles])
    oracle_results = iter(zip(oracles, reached, strict=True))
    return [
        trace.build_line(labels, trace_results, *next(oracle_results)) if isinstance(labels, Labels) else labels
        for trace, labels, trace_results in zip(group, results, arm_results, strict=True)
    ]


def decode_lanes(group: Sequence[OccludedTrace]) -> tuple[list[dict[int, Continuation]], list[list[Continuation]]]:
    """Return the continuations of each trace under each arm, by index; and those with nothing dropped and
    with each window dropped. One prefill for each trace, and one batch.
    """
    arm_lanes = [trace.probes.lanes() for trace in group]
    base_lanes = [{-1 - number: lane for number, lane in enumerate(trace.lanes)} for trace in group]
    try:
        results = run_lanes(group, [lanes | others for lanes, others in zip(base_lanes, arm_lanes, strict=True)])
    except BadInput:  # of some arm, or of the model; the lanes are run alone to find which
        results = run_lanes(group, base_lanes)
        for index in dict.fromkeys(index for others in arm_lanes for index in others):  # a wrong trace has no arms
            single_lanes = [{index: others[index]} if index in others else {} for others in arm_lanes]
            for trace_results, added in zip(results, explain_refusals(group, single_lanes), strict=True):
                trace_results |= added
    return (
        [{index: added[index] for index in others} for others, added in zip(arm_lanes, results, strict=True)],
        [[added[index] for index in lanes] for lanes, added in zip(base_lanes, results, strict=True)],
    )


def explain_refusals(
    group: Sequence[OccludedTrace], lanes: Sequence[Mapping[int, engine.Lane]]
) -> list[dict[int, Continuation]]:
    """Return why an arm is refused: it does not fit the model, or feeds more tokens than the model has positions."""
    try:
        return run_lanes(group, lanes)
    except BadInput as refusal:
        if len(group) > 1:
            return [
                explain_refusals([trace], [trace_lanes])[0] for trace, trace_lanes in zip(group, lanes, strict=True)
            ]
        return [dict.fromkeys(lanes[0], str(refusal))]


def run_lanes(
    group: Sequence[OccludedTrace], lanes: Sequence[Mapping[int, engine.Lane]]
) -> list[dict[int, Continuation]]:
    """Return the continuation in each lane of each trace, by index; none for a trace without lanes."""
    with_lanes = [(trace, trace_lanes) for trace, trace_lanes in zip(group, lanes, strict=True) if trace_lanes]
    if not with_lanes:
        return [{} for _ in group]
    requests = [trace.request(trace_lanes.values()) for trace, trace_lanes in with_lanes]
    outcomes = iter(group[0].decode.run(requests, group[0].settings.new_tokens))
    return [
        dict(zip(trace_lanes, map(trace.grade_outcome, next(outcomes)), strict=True)) if trace_lanes else {}
        for trace, trace_lanes in zip(group, lanes, strict=True)
    ]


def require_graded(continuation: Continuation) -> Graded:
    """Return the continuation. Raises Unlabelled if there is none."""
    if isinstance(continuation, str):
        raise Unlabelled(continuation)
    return continuation


def state_fields(state: str, reason: str) -> dict[str, str]:
    return {"state": state, "reason": reason}


def arm_entry(arm: Arm, continuation: Continuation) -> dict[str, Any]:
    """Return what an arm kept as a record stores it; "needed" is computed later, from the labels."""
    fields: dict[str, Any] = {"arm": arm.name, "budget": arm.budget, "slots": arm.slots, "needed": None}
    return fields | (state_fields("failed", continuation) if isinstance(continuation, str) else continuation._asdict())


def pack_rows(rows: Iterable[Tensor]) -> bytes:
    """Compress rows [n], rounded by `round_values`, NaN where missing: zlib of little-endian float32 [row, n]."""
    return zlib.compress(round_values(np.stack([row.double().cpu().numpy() for row in rows])).tobytes(), 9)


def round_values(numbers: NDArray[np.float64]) -> NDArray[np.float32]:
    """Round every number to BITS significant bits, halves to even."""
    fraction, exponent = np.frexp(numbers)
    rounded = np.ldexp(np.rint(fraction * 2.0**BITS) / 2.0**BITS, exponent)
    return rounded.astype("<f4")
