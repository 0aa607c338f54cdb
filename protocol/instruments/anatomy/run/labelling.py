"""Label the traces that [anatomy] registers: one half chooses a signal and layer, the other tests them.

No statistics are loaded before a half is complete; no testing trace is labelled before the choice is written.
"""

import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import transformers

from analysis.judgement.untrusted_files import RecordError
from protocol.formats import progress_display
from protocol.formats.instruments import Remeasured
from protocol.formats.progress_display import phase
from protocol.formats.refusals import BadInput
from protocol.instruments.anatomy import analysis as analysed
from protocol.instruments.anatomy import trace_file, windows
from protocol.instruments.anatomy.fields import HALVES
from protocol.instruments.anatomy.run import trace_record
from protocol.instruments.anatomy.slip import DROPS
from protocol.instruments.anatomy.trace_file import ExpectedTrace
from protocol.instruments.attempt import exclusive_attempt
from protocol.models import load
from protocol.run.executors import local
from protocol.tasks import held_out_guard, prompting
from protocol.workspace.planned_study import PlannedStudy
from protocol.workspace.study import Study

CHOOSING_HALF, TESTING_HALF = HALVES
CLOSING_EVENTS = {CHOOSING_HALF: "anatomy-chosen", TESTING_HALF: "anatomy-judged"}

HEAD_FIELDS = ("registration", "attempt", "half", "time", "chosen")  # of a line, which no labelling gives
LabelTraces: TypeAlias = Callable[[Sequence[ExpectedTrace]], Iterator[trace_record.TraceLine]]


class Workload(NamedTuple):
    """The most work that labelling takes, if every answer is as long as its task allows. tokens: fed and decoded."""

    traces: int
    occlusions: int
    tokens: int

    def describe(self) -> str:
        return (
            f"{self.traces:,} traces: at most {self.occlusions:,} occlusions and {self.tokens:,} tokens fed "
            "or decoded; an estimate of the time follows after the first trace"
        )


def anatomy(study: Study) -> None:
    """Label the remaining traces, choose, label the other half, judge. Raises as `exclusive_attempt` does, and
    BadInput for a half on which nothing can be chosen.
    """
    with exclusive_attempt(study, trace_file.INSTRUMENT):
        expected_traces = trace_file.expected_traces(study.lock.content)
        if recorded_traces := len(trace_file.read_traces(study.registration).bodies):
            progress_display.note(f"continuing: {recorded_traces:,} of {len(expected_traces):,} traces recorded")
        with phase("counting the remaining work"):
            progress_display.note(estimate_workload(study.planned, expected_traces[recorded_traces:]).describe())
        label = cache(lambda: _make_labeller(study))  # loads a model, if traces are left to label
        choosing = sum(expected_trace.half == CHOOSING_HALF for expected_trace in expected_traces)
        _label_half(study, choosing, expected_traces, label)
        with phase("choosing a signal and a layer"):
            chosen = _write_document(study, trace_file.CHOSEN, analysed.choose)
        _label_half(study, len(expected_traces), expected_traces, label, chosen)
        with phase("testing the chosen signal"):
            _write_document(study, trace_file.VERDICT, analysed.judge)


def estimate_workload(planned: PlannedStudy, expected_traces: Iterable[ExpectedTrace]) -> Workload:
    """Return the most work that labelling these traces takes, from their prompts. Builds development problems alone."""
    protocol, anatomy_settings = planned.protocol, planned.protocol.instruments["anatomy"]
    load_tokenizer = cache(lambda model: load.tokenizer(model, planned.home))
    registered, occlusion = {task.name: task for task in protocol.tasks}, anatomy_settings.occlusion()
    decoded_arms = len(protocol.arms) + 1  # without the full cache, and with the oracle
    slips = 0 if occlusion.slip is None else len(DROPS)
    traces = occlusions = tokens = 0
    for expected_trace in expected_traces:
        task, tokenizer = registered[expected_trace.task], load_tokenizer(expected_trace.model)
        counter = prompting.counter(tokenizer)
        problem = held_out_guard.build(planned.tasks[task.name], task.name, expected_trace.problem, counter)
        context, query = map(len, prompting.render(problem, tokenizer, task.query))
        span = windows.span_of(occlusion.occlude, context, query, task.max_new_tokens, Fraction(occlusion.cut))
        spans = windows.windows(span, occlusion.window, occlusion.stride)
        traces, occlusions = traces + 1, occlusions + 2 * len(spans)
        padded = sum(span.tokens - window_span.start for window_span in spans)
        continued = (2 * len(spans) + decoded_arms * len(protocol.budgets) + slips + 1) * occlusion.new_tokens
        tokens += context + query + task.max_new_tokens + 3 * span.tokens + padded + continued
    return Workload(traces, occlusions, tokens)


def rehearse(
    stand_in_plan: PlannedStudy, split: Mapping[str, Sequence[str]], lanes: Mapping[str, int]
) -> tuple[dict[str, Any], list[str]]:
    """Label one trace of the first model and task; return how it ended, what it took and the arms that failed,
    as a value of a rehearsal and as lines.
    """
    model, (task, (problem, *_)) = stand_in_plan.protocol.models[0], next(iter(split.items()))
    occlusion = stand_in_plan.protocol.instruments["anatomy"].occlusion()
    with phase("labelling one trace"):
        loaded, started = local.cache_models(stand_in_plan, lambda progress_event: None)(model), time.monotonic()
        body = trace_record.occlude_trace(stand_in_plan, loaded, task, problem, occlusion, lanes.get(model)).body
    occlusions, seconds = sum(map(len, body.get("windows", {}).values())), round(time.monotonic() - started, 1)
    failed = sorted({f"{row['arm']}: {row['reason']}" for row in body.get("kept", ()) if "reason" in row})
    trace = {
        "task": task,
        "problem": problem,
        "state": body["state"],
        "reason": body["reason"],
        "occlusions": occlusions,
        "seconds": seconds,
        "failed": failed,
    }
    why = f" ({body['reason']})" if body["reason"] else ""
    line = f"[anatomy]: {task} {problem} is {body['state']}{why}: {occlusions} occlusions in {seconds} s"
    return {"trace": trace}, [line, *(f"[anatomy]: {failure}" for failure in failed)]


def _label_half(
    study: Study,
    end: int,
    expected_traces: Sequence[ExpectedTrace],
    make_labeller: Callable[[], LabelTraces],
    chosen: str | None = None,
) -> None:
    """Label the unlabelled traces before `end` in a new attempt, unless the last attempt ended with all of
    them. chosen: the digest that testing traces cite.
    """
    current = study.registration.reopen()
    events = [entry.event for entry in current.entries if entry.event in trace_file.EVENTS]
    recorded_traces = len(trace_file.read_traces(current).bodies)
    if recorded_traces >= end and {"occluded", *CLOSING_EVENTS.values()} & {*events[-1:]}:
        return
    attempt, count = trace_file.begin_attempt(study.registration), len(expected_traces)
    with trace_file.TraceWriter(study.registration) as writer, phase("labelling traces") as update:
        traced_bodies, started = make_labeller()(expected_traces[recorded_traces:end]), time.monotonic()
        for index, expected_trace in enumerate(expected_traces[recorded_traces:end], start=recorded_traces):
            done, seconds = index - recorded_traces, time.monotonic() - started
            seconds_left = seconds / done * (count - index) if done else None
            position_text, more = f"{index:,} of {count:,}", f"{expected_trace.task} {expected_trace.problem}"
            more += f", to {expected_trace.half}"
            update(progress_display.Progress(position_text, index, count, seconds_left, more=more))
            traced = next(traced_bodies)
            head = {"registration": study.lock.digest, "attempt": attempt, "half": expected_trace.half}
            head["time"] = datetime.now(UTC).isoformat(timespec="seconds")
            cited = {} if expected_trace.half == CHOOSING_HALF else {"chosen": chosen}
            writer.append({**traced.body, **head, **cited}, traced.values)
    trace_file.end_attempt(study.registration)


def _make_labeller(study: Study) -> LabelTraces:
    """Return a function that labels traces in order. Sets torch's threads and deterministic mode for the process."""
    local.configure_torch(study.planned.protocol.generation)
    transformers.utils.logging.disable_progress_bar()  # our own display is enough
    model_of, lanes = local.cache_models(study.planned, lambda progress_event: None), study.lanes()
    occlusion = study.protocol.instruments["anatomy"].occlusion()

    def label(expected_traces: Sequence[ExpectedTrace]) -> Iterator[trace_record.TraceLine]:
        for (model, task), group in groupby(expected_traces, key=lambda trace: (trace.model, trace.task)):
            problems = [expected_trace.problem for expected_trace in group]
            loaded, lane_count = model_of(model), lanes.get(model)
            yield from trace_record.occlude_traces(study.planned, loaded, task, problems, occlusion, lane_count)

    return label


def label_again(study: Study, draw: Callable[[int], list[int]]) -> Iterator[Remeasured]:
    """Label drawn traces again; yield their texts and grades, and whether the values of their tokens are close; of a
    trace whose text or control is another, that alone.
    """
    bodies, expected = trace_file.read_traces(study.registration).bodies, trace_file.expected_traces(study.lock.content)
    numbers = draw(len(bodies))
    for number, line in zip(numbers, _make_labeller(study)([expected[number] for number in numbers]), strict=True):
        body, where = bodies[number], f"trace {expected[number].task}/{expected[number].problem}"
        now = line.body
        if cause := next((name for name in ("text", "control") if body.get(name) != now.get(name)), ""):
            yield Remeasured(f"{where}: {cause}", body.get(cause), now.get(cause), may_round=True)
            continue  # all else follows from it
        may_round = {"slip"} | ({"state", "reason"} if body.get("windows") != now.get("windows") else set())
        for name in sorted(now.keys() - {"values", "windows", "kept", *HEAD_FIELDS}):
            yield Remeasured(f"{where}: {name}", body.get(name), now[name], name in may_round)
        for reading, rows in now.get("windows", {}).items():
            for index, row in enumerate(rows):
                recorded = body.get("windows", {}).get(reading, ())[index : index + 1]
                yield Remeasured(f"{where}: windows.{reading}.{index}", recorded, [row], may_round=True)
        for index, row in enumerate(now.get("kept", ())):
            yield Remeasured(f"{where}: kept.{index}", body.get("kept", ())[index : index + 1], [row], may_round=True)
        if "values" in now:
            yield Remeasured(f"{where}: values", True, _are_close(study, body, line.values), may_round=True)


def _are_close(study: Study, body: Mapping[str, Any], values: bytes) -> bool:
    recorded = np.frombuffer(trace_file.read_values(study.registration, body), dtype="<f4")
    now = np.frombuffer(zlib.decompress(values), dtype="<f4")
    return recorded.shape == now.shape and bool(np.allclose(recorded, now, rtol=1e-3, atol=1e-4, equal_nan=True))


def _write_document(study: Study, name: str, analyze: Callable[[Path], dict[str, Any]]) -> str:
    try:
        result = analyze(study.folder)
    except RecordError as incomplete:
        raise BadInput(str(incomplete)) from None
    return trace_file.write_document(study.registration, name, result)
