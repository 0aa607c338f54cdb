"""Measure time and memory of one arm alone, as `[cost]` registers them: one point, warm, with nothing else
decoding.

A point runs once for memory, from an emptied allocator, then again until the warm-ups are done, then once for
time. No stop token ends a lane.
"""

from __future__ import annotations

import gc
import os
import platform
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import torch

from protocol import engine
from protocol.engine.max_concurrent import slot_bytes
from protocol.formats import canonical, progress_display
from protocol.formats.instruments import Remeasured
from protocol.formats.progress_display import phase
from protocol.instruments.attempt import exclusive_attempt
from protocol.instruments.cost import measurement_file
from protocol.instruments.cost.measurement_file import ExpectedLine
from protocol.models.load import LoadedModel
from protocol.plan.grid import Cell, budget_of, policy_of
from protocol.run.executors.local import cache_models, configure_torch, count_kv_heads
from protocol.workspace.planned_study import PlannedStudy
from protocol.workspace.study import Study

STATUS, CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")
CPU_OUT_OF_MEMORY = "can't allocate memory"  # in the error message of torch's CPU allocator


class Moment(NamedTuple):
    """A time stamp: the wall clock and CPU time in ns, and memory fields named as in `cost_fields`."""

    clock: int
    cpu: int
    memory: dict[str, int]


class TimedRun(NamedTuple):
    run: engine.Run
    start: Moment
    prefilled: Moment
    end: Moment


def measure_study(study: Study) -> None:
    """Measure the repetitions that this machine's file lacks. Raises as `exclusive_attempt` does."""
    with exclusive_attempt(study, measurement_file.INSTRUMENT):
        configure_torch(study.planned.protocol.generation)
        machine = describe_machine(study.planned)
        expected = measurement_file.expected_lines(study.lock.content)
        if measurement_file.count_repetitions(study.registration, machine) < len(expected):
            _measure_points(study, machine, expected)


def _measure_points(study: Study, machine: dict[str, object], expected: list[measurement_file.ExpectedLine]) -> None:
    number = measurement_file.begin_attempt(study.registration, machine)
    model_of = cache_models(study.planned, lambda progress_event: None)
    with measurement_file.MeasurementWriter(study.registration, machine) as writer, phase("measuring") as update:
        measured_count = writer.measured
        for index, repetition in enumerate(expected[measured_count:], start=measured_count):
            position_text = f"{index:,} of {len(expected):,} repetitions"
            update(
                progress_display.Progress(
                    position_text, index, len(expected), more=f"{repetition.point.arm}, {repetition.point.lanes} lanes"
                )
            )
            writer.append(measure_point(study.planned, model_of(repetition.point.model), repetition, number))
    measurement_file.end_attempt(study.registration, machine)


def measure_again(study: Study, draw: Callable[[int], list[int]]) -> Iterator[Remeasured]:
    """Measure drawn repetitions again; yield what is counted of them, and no time. Sets torch's threads and
    deterministic mode for the process. Raises MemoryError for one that fits no longer.
    """
    configure_torch(study.planned.protocol.generation)
    model_of = cache_models(study.planned, lambda progress_event: None)
    expected = measurement_file.expected_lines(study.lock.content)
    lines = [
        (measurement.name, line, body)
        for measurement in measurement_file.read_measurements(study.registration)
        for line, body in zip(expected, measurement.bodies, strict=False)
        if body["state"] != "out of memory"
    ]
    for name, line, body in (lines[number] for number in draw(len(lines))):
        now = measure_point(study.planned, model_of(line.point.model), line, 1)
        if now["state"] == "out of memory":  # here, and no fault of the study
            raise MemoryError(now["reason"])
        for field in ("slots", "prompts", "state"):
            yield Remeasured(f"{name}, {line.point.arm}: {field}", body[field], now[field])
        for field in ("heads", "slot", "held", "room", "room_peak", "weights") if now["state"] == "ok" else ():
            yield Remeasured(
                f"{name}, {line.point.arm}: memory.{field}", body.get("memory", {}).get(field), now["memory"][field]
            )


def describe_machine(planned: PlannedStudy) -> dict[str, Any]:
    """Return a description of this machine, with the fields of `fields.MACHINE`."""
    cuda = planned.protocol.generation.device == "cuda"
    fields = {
        "host": platform.node(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": _processor_name(),
        "cores": os.cpu_count() or 1,
        "memory": int(psutil.virtual_memory().total),
        "device": "cpu",
        "torch": str(torch.__version__),
        "threads": planned.protocol.generation.threads,
        "clock": f"time.perf_counter: {time.get_clock_info('perf_counter').implementation}",
    }
    if cuda:
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        fields |= {"device": f"{properties.name} {getattr(properties, 'uuid', '')}".strip()}
        fields |= {"device_memory": int(properties.total_memory)}
    return fields


def draw_prompts(model: LoadedModel, seed: int, tokens: int, lanes: int) -> list[tuple[int, ...]]:
    """Return random prompts, the same for every arm: uniform over the vocabulary without its special tokens.

    The cost of a pass depends on lengths and not on content; docs/machines.md says what that leaves out for
    policies that select by content.
    """
    special = set(model.tokenizer.all_special_ids) | model.stop_ids
    ordinary_ids = [token_id for token_id in range(model.network.config.vocab_size) if token_id not in special]
    return [tuple(random.Random(f"{seed}/{tokens}/{lane}").choices(ordinary_ids, k=tokens)) for lane in range(lanes)]


def measure_point(planned: PlannedStudy, model: LoadedModel, expected: ExpectedLine, attempt: int) -> dict[str, Any]:
    """Run one repetition; return the fields of `fields.MEASURED`. A refusal and lack of memory are outcomes."""
    point, cost = expected.point, planned.protocol.instruments["cost"]
    contexts = draw_prompts(model, cost.seed, point.prompt_tokens, point.lanes)
    cell = Cell(model.name, "", point.budget, point.arm, 0)
    slot = planned.slot(model.name, point.arm)
    full_use = Fraction(point.prompt_tokens + cost.new_tokens - 1)  # the last new token is not fed
    slots = budget_of(planned.protocol, cell, point.prompt_tokens, full_use, slot)
    policy = policy_of(planned.protocol, cell, slot)
    requests = [
        engine.Request(f"made-up {number}", engine.Prompt(context, ()), (_make_lane(point.arm, policy, slots),))
        for number, context in enumerate(contexts)
    ]
    load_before = _system_load()
    body: dict[str, Any] = {
        "attempt": attempt,
        "repetition": expected.repetition,
        "point": point._asdict(),
        "slots": slots,
        "prompts": canonical.digest([list(context) for context in contexts]),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    unstopped = replace(model, stop_ids=frozenset())
    try:
        memory_run = _run_engine(planned, unstopped, requests, cost.new_tokens, empty_cache=True)
        if reason := _failure_reason(memory_run.run):
            return body | {"state": "failed", "reason": reason} | _load_fields(load_before)
        for _ in range(cost.warm_ups - 1):
            _run_engine(planned, unstopped, requests, cost.new_tokens)
        timed_run = _run_engine(planned, unstopped, requests, cost.new_tokens)
    except (MemoryError, torch.OutOfMemoryError) as exhausted:
        return body | {"state": "out of memory", "reason": _one_line(exhausted)} | _load_fields(load_before)
    except RuntimeError as error:
        if CPU_OUT_OF_MEMORY not in str(error):
            raise
        return body | {"state": "out of memory", "reason": _one_line(error)} | _load_fields(load_before)
    network = model.network
    heads = count_kv_heads(model)
    outcomes = [outcome for answers in memory_run.run.answers for outcome in answers.outcomes]
    finished = [outcome for outcome in outcomes if isinstance(outcome, engine.Outcome)]
    memory = {
        "weights": sum(weight.numel() * weight.element_size() for weight in network.parameters()),
        "heads": heads,
        "slot": slot_bytes(network.config, network.dtype, policy.state) // heads,
        "held": sum(outcome.slots[0] for outcome in finished),
        "room": sum(outcome.allocated[0] for outcome in finished),
        "room_peak": memory_run.run.peak_bytes,
    }
    prefill_memory = memory_run.prefilled.memory
    memory |= {name: prefill_memory[name] for name in ("allocated", "reserved") if name in prefill_memory}
    if "rss" in memory_run.start.memory:
        memory["rss_before"] = memory_run.start.memory["rss"]
    prefill = _phase_fields(point.lanes * point.prompt_tokens, timed_run.start, timed_run.prefilled, prefill_memory)
    decode = _phase_fields(
        point.lanes * (cost.new_tokens - 1), timed_run.prefilled, timed_run.end, memory_run.end.memory
    )
    return (
        body
        | {"state": "ok", "reason": "", "prefill": prefill, "decode": decode, "memory": memory}
        | _load_fields(load_before)
    )


def _make_lane(arm: str, policy: Any, slots: int | None) -> engine.Lane:
    return engine.Lane(arm, policy, slots if policy.evicts else None, seed=0)


def _run_engine(
    planned: PlannedStudy,
    model: LoadedModel,
    requests: Sequence[engine.Request],
    new_tokens: int,
    *,
    empty_cache: bool = False,
) -> TimedRun:
    """empty_cache: first return the allocator's cached memory to the device, so that peaks are of this run alone."""
    generation, cuda = planned.protocol.generation, model.network.device.type == "cuda"
    gc.collect()
    if cuda and empty_cache:
        torch.cuda.empty_cache()
    moments = [_take_moment(cuda)]

    def note_prefill(progress: engine.Progress) -> None:
        if progress.phase == "prefilled" and len(moments) == 1:
            moments.append(_take_moment(cuda))

    engine_run = engine.run(
        model,
        requests,
        max_new_tokens=new_tokens,
        max_concurrent=len(requests),
        report=note_prefill,
        **generation.engine_settings(),
    )
    moments.append(_take_moment(cuda))
    return TimedRun(engine_run, moments[0], moments[1], moments[-1])


def _take_moment(cuda: bool) -> Moment:
    """Return the clocks and the memory peaks since the last call, which resets them."""
    memory: dict[str, int] = {}
    if cuda:
        torch.cuda.synchronize()
        memory = {
            "allocated": torch.cuda.memory_allocated(),
            "reserved": torch.cuda.memory_reserved(),
            "allocated_peak": torch.cuda.max_memory_allocated(),
            "reserved_peak": torch.cuda.max_memory_reserved(),
        }
        torch.cuda.reset_peak_memory_stats()
    memory |= _resident_memory()
    return Moment(time.perf_counter_ns(), time.process_time_ns(), memory)


def _resident_memory() -> dict[str, int]:
    """Return the resident set and its peak, which Linux resets when a 5 is written to clear_refs
    (proc_pid_clear_refs(5)). Empty where that is not possible.
    """
    try:
        lines = dict(line.split(":", 1) for line in STATUS.read_text().splitlines())
        CLEAR_REFS.write_text("5")
        return {name: 1024 * int(lines[key].split()[0]) for name, key in (("rss", "VmRSS"), ("rss_peak", "VmHWM"))}
    except (OSError, KeyError, ValueError):
        return {}


def _phase_fields(tokens: int, start: Moment, end: Moment, memory: Mapping[str, int]) -> dict[str, Any]:
    seconds = _format_seconds(end.clock - start.clock)
    fields: dict[str, Any] = {
        "tokens": tokens,
        "seconds": seconds,
        "cpu_seconds": _format_seconds(end.cpu - start.cpu),
        "tokens_per_second": f"{Decimal(tokens) / Decimal(seconds):.3f}",
    }
    peaks = ("rss_peak", "allocated_peak", "reserved_peak")
    return fields | {name: memory[name] for name in peaks if name in memory}


def _format_seconds(nanoseconds: int) -> str:
    """Format as seconds, with a minimum of one nanosecond, the resolution of the clock."""
    return f"{Decimal(max(1, nanoseconds)) / 10**9:.9f}"


def _failure_reason(run: engine.Run) -> str:
    outcomes = (outcome for answers in run.answers for outcome in answers.outcomes)
    return next((outcome.reason for outcome in outcomes if isinstance(outcome, engine.LaneFailure)), "")


def _system_load() -> str | None:
    load_average: Callable[[], tuple[float, float, float]] | None = getattr(os, "getloadavg", None)
    return None if load_average is None else f"{load_average()[0]:.2f}"


def _load_fields(load_before: str | None) -> dict[str, Any]:
    load_after = _system_load()
    return {} if load_before is None or load_after is None else {"load": {"before": load_before, "after": load_after}}


def _one_line(error: BaseException) -> str:
    return (" ".join(str(error).split()) or type(error).__name__)[:200]


def _processor_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    model_names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(model_names, platform.processor())
