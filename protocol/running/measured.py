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
from collections.abc import Callable, Mapping, Sequence
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
from protocol.evidence.bytes import canonical
from protocol.evidence.run.costs import Due
from protocol.locked.planned import Planned
from protocol.models.load import LoadedModel
from protocol.plan.grid import Cell, budget_of, policy_of
from protocol.running.executors.local import heads_of

__all__ = ["machine", "measure", "prompts", "ready"]

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
CPU_IS_FULL = "can't allocate memory"  # in the error message of torch's CPU allocator


class Moment(NamedTuple):
    """A time stamp: the wall clock and CPU time in ns, and memory fields named as in `cost_fields`."""

    clock: int
    cpu: int
    memory: dict[str, int]


class Ran(NamedTuple):
    run: engine.Run
    start: Moment
    prefilled: Moment
    end: Moment


def ready(planned: Planned) -> None:
    """Set torch's threads and deterministic mode for the process, as a phase of the study does."""
    torch.set_num_threads(planned.protocol.generation.threads)
    torch.use_deterministic_algorithms(True)
    if planned.protocol.generation.device == "cuda":  # else products refuse to run deterministically there
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def machine(planned: Planned) -> dict[str, Any]:
    """Return a description of this machine, with the fields of `cost_fields.MACHINE`."""
    cuda = planned.protocol.generation.device == "cuda"
    found = {
        "host": platform.node(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "memory": int(psutil.virtual_memory().total),
        "device": "cpu",
        "torch": str(torch.__version__),
        "threads": planned.protocol.generation.threads,
        "clock": f"time.perf_counter: {time.get_clock_info('perf_counter').implementation}",
    }
    if cuda:
        card = torch.cuda.get_device_properties(torch.cuda.current_device())
        found |= {"device": f"{card.name} {getattr(card, 'uuid', '')}".strip()}
        found |= {"device_memory": int(card.total_memory)}
    return found


def prompts(model: LoadedModel, seed: int, tokens: int, lanes: int) -> list[tuple[int, ...]]:
    """Return random prompts, the same for every arm: uniform over the vocabulary without its special tokens.

    The cost of a pass depends on lengths and not on content; docs/cost.md says what that leaves out for
    policies that select by content.
    """
    special = set(model.tokenizer.all_special_ids) | model.stop_ids
    known = [one for one in range(model.network.config.vocab_size) if one not in special]
    return [tuple(random.Random(f"{seed}/{tokens}/{lane}").choices(known, k=tokens)) for lane in range(lanes)]


def measure(planned: Planned, model: LoadedModel, due: Due, attempt: int) -> dict[str, Any]:
    """Run one repetition and return the fields of `cost_fields.MEASURED`. A refusal by the policy and
    exhausted memory are outcomes.
    """
    point, cost = due.point, planned.protocol.cost
    assert cost is not None, "no [cost] is registered"
    contexts = prompts(model, cost.seed, point.prompt_tokens, point.lanes)
    cell = Cell(model.name, "", point.budget, point.arm, 0)
    slot = planned.slot(model.name, point.arm)
    use = Fraction(point.prompt_tokens + cost.new_tokens - 1)  # the last new token is not fed
    slots = budget_of(planned.protocol, cell, point.prompt_tokens, use, slot)
    policy = policy_of(planned.protocol, cell, slot)
    requests = [
        engine.Request(f"made-up {number}", engine.Prompt(context, ()), (_lane(point.arm, policy, slots),))
        for number, context in enumerate(contexts)
    ]
    load = _load()
    body: dict[str, Any] = {
        "attempt": attempt,
        "repetition": due.repetition,
        "point": point._asdict(),
        "slots": slots,
        "prompts": canonical.digest([list(context) for context in contexts]),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    unstopped = replace(model, stop_ids=frozenset())
    try:
        for_memory = _run(planned, unstopped, requests, cost.new_tokens, emptied=True)
        if reason := _failed(for_memory.run):
            return body | {"state": "failed", "reason": reason} | _loads(load)
        for _ in range(cost.warm_ups - 1):
            _run(planned, unstopped, requests, cost.new_tokens)
        timed = _run(planned, unstopped, requests, cost.new_tokens)
    except (MemoryError, torch.OutOfMemoryError) as short:
        return body | {"state": "out of memory", "reason": _line(short)} | _loads(load)
    except RuntimeError as error:
        if CPU_IS_FULL not in str(error):
            raise
        return body | {"state": "out of memory", "reason": _line(error)} | _loads(load)
    network = model.network
    heads = heads_of(model)
    outcomes = [one for answers in for_memory.run.answers for one in answers.outcomes]
    ended = [one for one in outcomes if isinstance(one, engine.Outcome)]
    memory = {
        "weights": sum(own.numel() * own.element_size() for own in network.parameters()),
        "heads": heads,
        "slot": slot_bytes(network.config, network.dtype, policy.state) // heads,
        "held": sum(one.held[0] for one in ended),
        "room": sum(one.allocated[0] for one in ended),
        "room_peak": for_memory.run.peak_bytes,
    }
    at = for_memory.prefilled.memory
    memory |= {name: at[name] for name in ("allocated", "reserved") if name in at}
    if "rss" in for_memory.start.memory:
        memory["rss_before"] = for_memory.start.memory["rss"]
    prefill = _phase(point.lanes * point.prompt_tokens, timed.start, timed.prefilled, at)
    decode = _phase(point.lanes * (cost.new_tokens - 1), timed.prefilled, timed.end, for_memory.end.memory)
    return (
        body
        | {"state": "ok", "reason": "", "prefill": prefill, "decode": decode, "memory": memory}
        | _loads(load)
    )


def _lane(arm: str, policy: Any, slots: int | None) -> engine.Lane:
    return engine.Lane(arm, policy, slots, seed=0)


def _run(
    planned: Planned,
    model: LoadedModel,
    requests: Sequence[engine.Request],
    new_tokens: int,
    *,
    emptied: bool = False,
) -> Ran:
    """empty_cache: first return the allocator's cached memory to the device, so that peaks are of this run
    alone.
    """
    generation, cuda = planned.protocol.generation, model.network.device.type == "cuda"
    gc.collect()
    if cuda and emptied:
        torch.cuda.empty_cache()
    moments = [_moment(cuda)]

    def seen(doing: engine.Doing) -> None:
        if doing.what == "prefilled" and len(moments) == 1:
            moments.append(_moment(cuda))

    ran = engine.run(
        model,
        requests,
        max_new_tokens=new_tokens,
        temperature=float(generation.temperature),
        top_p=float(1 if generation.top_p is None else generation.top_p),
        max_concurrent=len(requests),
        prefill_chunk=generation.prefill_chunk,
        first_event=generation.waits,
        report=seen,
    )
    moments.append(_moment(cuda))
    return Ran(ran, moments[0], moments[1], moments[-1])


def _moment(cuda: bool) -> Moment:
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
    memory |= _resident()
    return Moment(time.perf_counter_ns(), time.process_time_ns(), memory)


def _resident() -> dict[str, int]:
    """Return the resident set and its peak, which Linux resets when a 5 is written to clear_refs
    (proc_pid_clear_refs(5)). Empty where that is not possible.
    """
    try:
        lines = dict(line.split(":", 1) for line in STATUS.read_text().splitlines())
        CLEAR.write_text("5")
        return {
            name: 1024 * int(lines[of].split()[0]) for name, of in (("rss", "VmRSS"), ("rss_peak", "VmHWM"))
        }
    except (OSError, KeyError, ValueError):
        return {}


def _phase(tokens: int, start: Moment, end: Moment, memory: Mapping[str, int]) -> dict[str, Any]:
    seconds = _seconds(end.clock - start.clock)
    found: dict[str, Any] = {
        "tokens": tokens,
        "seconds": seconds,
        "cpu_seconds": _seconds(end.cpu - start.cpu),
        "tokens_per_second": f"{Decimal(tokens) / Decimal(seconds):.3f}",
    }
    peaks = ("rss_peak", "allocated_peak", "reserved_peak")
    return found | {name: memory[name] for name in peaks if name in memory}


def _seconds(nanoseconds: int) -> str:
    """Format as seconds, with a minimum of one nanosecond, the resolution of the clock."""
    return f"{Decimal(max(1, nanoseconds)) / 10**9:.9f}"


def _failed(run: engine.Run) -> str:
    failures = (one for answers in run.answers for one in answers.outcomes)
    return next((one.reason for one in failures if isinstance(one, engine.LaneFailure)), "")


def _load() -> str | None:
    found: Callable[[], tuple[float, float, float]] | None = getattr(os, "getloadavg", None)
    return None if found is None else f"{found()[0]:.2f}"


def _loads(before: str | None) -> dict[str, Any]:
    after = _load()
    return {} if before is None or after is None else {"load": {"before": before, "after": after}}


def _line(error: BaseException) -> str:
    return (" ".join(str(error).split()) or type(error).__name__)[:200]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor())
