"""Measured time and memory as tables: rates, ratios to the full cache, peaks, the largest batch that fits.

Reads cost/*.jsonl by their documented format (docs/machines.md); kv-prereg audit verifies them. This module knows
no accuracies and gives no verdict.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from analysis.judgement import untrusted_files
from analysis.judgement.untrusted_files import RecordError, read_bytes, refuse_special_files
from analysis.stats.paired_ratios import MIN_REPETITIONS, GeometricMean, geometric_mean, paired_ratio
from protocol.formats.text_tables import format_columns
from protocol.formats.vocabulary import FULL
from protocol.instruments.cost.measurement_file import FOLDER, Point

BUSY = 0.5  # load average above the threads of the study that means that something else ran
PREFILL, DECODE = "prefill", "decode"


class NothingMeasured(RecordError):
    """A study without measured time and memory; the message says what to do about it."""


class CostRow(NamedTuple):
    """The measurements of one point over its repetitions; levels are None if no repetition succeeded.

    seconds, rates: of prefill and decode; rates are tokens a second. ratio: of the rate to that of the full
    cache at the same length and lanes, within repetitions; None for the full cache itself and without one.
    peaks: bytes, by phase and then as `cost/*.jsonl` names them, maximum over repetitions. memory: fields of
    the same name, from the first repetition that succeeded.
    """

    place: Point
    slots: int | None
    ended: Mapping[str, int]
    seconds: Mapping[str, GeometricMean] | None
    rates: Mapping[str, GeometricMean] | None
    ratio: Mapping[str, GeometricMean] | None
    overhead: GeometricMean | None  # prefill seconds over those of the full cache
    work: GeometricMean | None  # of decoding: seconds of the process, over those of the full cache
    peaks: Mapping[str, Mapping[str, int]]
    memory: Mapping[str, int]
    fits: bool


class LargestBatch(NamedTuple):
    """The largest registered number of lanes that fits, and its decoding rate; ratio: to the full cache at
    its own largest number. lanes: None if none fits.
    """

    model: str
    prompt_tokens: int
    arm: str
    budget: str
    lanes: int | None
    of: int  # the largest registered number
    rate: GeometricMean | None
    ratio: GeometricMean | None


class MachineCosts(NamedTuple):
    """The measurements of one machine."""

    name: str
    machine: Mapping[str, Any]
    cost: Mapping[str, Any]
    due: int
    done: int
    busy: int
    rows: list[CostRow]
    largest: list[LargestBatch]


def read_protocol(folder: Path) -> dict[str, Any]:
    """Return the protocol's content in the lock. Raises RecordError."""
    try:
        content: dict[str, Any] = json.loads(read_bytes(folder / "lock.json"))["protocol"]["content"]
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise RecordError(f"{folder}: lock.json cannot be read ({type(problem).__name__})") from None
    return content


def read_costs(folder: Path) -> list[MachineCosts]:
    """Read the costs by machine. Raises RecordError if nothing was measured, and for an unknown format."""
    folder = Path(folder)
    refuse_special_files(folder)
    protocol = read_protocol(folder)
    if "cost" not in protocol:
        raise NothingMeasured(f"{folder}: registers no [cost]; add this table to a protocol before it is locked")
    machines = []
    for name, journal_lines in groupby(untrusted_files.read_lines(folder / FOLDER, "*.jsonl"), itemgetter(0)):
        try:
            first, *rest = [json.loads(line)["body"] for *_, line in journal_lines if line.endswith(b"\n")]
            machines.append(_summarise_machine(name, first["machine"], rest, protocol))
        except (ValueError, KeyError, TypeError) as problem:
            raise RecordError(
                f"{folder}: {FOLDER}/{name} is not of the documented format ({type(problem).__name__}: "
                f"{problem}); run: kv-prereg audit {folder}"
            ) from None
    if not any(machine.rows for machine in machines):
        raise NothingMeasured(f"{folder}: nothing has been measured yet; run: kv-prereg cost {folder}")
    return [machine for machine in machines if machine.rows]


def _summarise_machine(
    name: str, machine: Mapping[str, Any], bodies: Sequence[Any], protocol: Mapping[str, Any]
) -> MachineCosts:
    by_place: dict[Point, dict[int, Any]] = defaultdict(dict)
    for body in bodies:
        by_place[Point(**body["point"])][body["repetition"]] = body
    cost = protocol["cost"]
    order = {arm: point for point, arm in enumerate(cost.get("arms") or protocol["arms"])}
    budgets = [FULL, *map(str, cost.get("budgets") or protocol["budgets"])]
    models = protocol["models"]

    def key(point: Point) -> tuple[int, int, int, int, int]:
        budget = budgets.index(point.budget)
        return models.index(point.model), point.prompt_tokens, point.lanes, budget, order[point.arm]

    points = sorted(by_place, key=key)
    rows = [_summarise_point(point, by_place, cost.get("fits_in")) for point in points]
    return MachineCosts(
        name,
        machine,
        cost,
        due=_expected_repetitions(protocol, {point.arm for point in points if point.budget == FULL}),
        done=len(bodies),
        busy=sum(was_busy(body, machine) for body in bodies),
        rows=rows,
        largest=list(_largest_batches(rows, by_place, cost)),
    )


def _expected_repetitions(protocol: Mapping[str, Any], full_arms: set[str]) -> int:
    cost = protocol["cost"]
    budgets = len(cost.get("budgets") or protocol["budgets"])
    arms = cost.get("arms") or list(protocol["arms"])
    combinations = sum(1 if arm in full_arms else budgets for arm in arms)
    return int(
        combinations * len(protocol["models"]) * len(cost["prompt_tokens"]) * len(cost["lanes"]) * cost["repetitions"]
    )


def was_busy(body: Mapping[str, Any], machine: Mapping[str, Any]) -> bool:
    """Return whether something else ran before this repetition; all but the first have our threads in their load."""
    return "load" in body and float(body["load"]["before"]) > machine["threads"] + BUSY


def _summarise_point(point: Point, by_place: Mapping[Point, Mapping[int, Any]], limit: int | None) -> CostRow:
    bodies = by_place[point]
    succeeded = {number: body for number, body in bodies.items() if body["state"] == "ok"}
    ended = {
        state: sum(body["state"] == state for body in bodies.values()) for state in ("ok", "out of memory", "failed")
    }
    slots = next(iter(bodies.values()))["slots"]
    if not succeeded:
        return CostRow(point, slots, ended, None, None, None, None, None, {}, {}, False)
    full_cache = _full_cache_repetitions(point, by_place)
    memory = next(iter(succeeded.values()))["memory"]
    peaks = {phase: _phase_peaks(phase, succeeded.values()) for phase in (PREFILL, DECODE)}
    return CostRow(
        point,
        slots,
        ended,
        {phase: geometric_mean(_values(succeeded, phase, "seconds")) for phase in (PREFILL, DECODE)},
        {phase: geometric_mean(_values(succeeded, phase, "tokens_per_second")) for phase in (PREFILL, DECODE)},
        _rate_ratios(succeeded, full_cache) if full_cache else None,
        _paired_ratio(succeeded, full_cache, PREFILL, "seconds") if full_cache else None,
        _paired_ratio(succeeded, full_cache, DECODE, "cpu_seconds") if full_cache else None,
        peaks,
        memory,
        fits=ended["ok"] == len(bodies) and (limit is None or memory_peak(peaks, memory) <= limit),
    )


def memory_peak(peaks: Mapping[str, Mapping[str, int]], memory: Mapping[str, int]) -> int:
    """Return the bytes compared with `fits_in`: on CUDA the peak reserved, on a CPU the peak of keys and values."""
    reserved = [phase_peaks["reserved_peak"] for phase_peaks in peaks.values() if "reserved_peak" in phase_peaks]
    return max(reserved, default=memory["room_peak"])


def _phase_peaks(phase: str, bodies: Any) -> dict[str, int]:
    names = ("rss_peak", "allocated_peak", "reserved_peak")
    return {
        name: max(body[phase][name] for body in bodies) for name in names if all(name in body[phase] for body in bodies)
    }


def _full_cache_repetitions(point: Point, by_place: Mapping[Point, Mapping[int, Any]]) -> dict[int, Any]:
    """Return the successful repetitions of the full cache at the same setting; none for the full cache itself."""
    if point.budget == FULL:
        return {}
    for other, bodies in by_place.items():
        if other.budget == FULL and other[:3] == point[:3]:
            return {number: body for number, body in bodies.items() if body["state"] == "ok"}
    return {}


def _values(bodies: Mapping[int, Any], phase: str, name: str) -> list[float]:
    return [float(body[phase][name]) for body in bodies.values()]


def _rate_ratios(arm_runs: Mapping[int, Any], full_runs: Mapping[int, Any]) -> dict[str, GeometricMean] | None:
    ratios = {phase: _paired_ratio(arm_runs, full_runs, phase, "tokens_per_second") for phase in (PREFILL, DECODE)}
    return {phase: level for phase, level in ratios.items() if level is not None} or None


def _paired_ratio(
    arm_runs: Mapping[int, Any], other_runs: Mapping[int, Any], phase: str, name: str
) -> GeometricMean | None:
    repetitions = sorted(arm_runs.keys() & other_runs.keys())
    if not repetitions:
        return None
    values, others = ([float(runs[number][phase][name]) for number in repetitions] for runs in (arm_runs, other_runs))
    return paired_ratio(values, others)


def _largest_batches(
    rows: Sequence[CostRow], by_place: Mapping[Point, Mapping[int, Any]], cost: Mapping[str, Any]
) -> Iterator[LargestBatch]:
    groups: dict[tuple[str, int, str, str], list[CostRow]] = defaultdict(list)
    for row in rows:
        groups[row.place.model, row.place.prompt_tokens, row.place.arm, row.place.budget].append(row)
    most: dict[tuple[str, int, str, str], CostRow | None] = {
        key: max((row for row in group if row.fits), key=_lane_count, default=None) for key, group in groups.items()
    }
    for (model, tokens, arm, budget), best in most.items():
        rate = best.rates[DECODE] if best is not None and best.rates else None
        full = next(
            (
                other
                for (its_model, its_tokens, _, its_budget), other in most.items()
                if (its_model, its_tokens, its_budget) == (model, tokens, FULL)
            ),
            None,
        )
        ratio = None
        if best is not None and full is not None and budget != FULL:
            ratio = _paired_ratio(by_place[best.place], by_place[full.place], DECODE, "tokens_per_second")
        lanes = None if best is None else best.place.lanes
        yield LargestBatch(model, tokens, arm, budget, lanes, max(cost["lanes"]), rate, ratio)


def _lane_count(row: CostRow) -> int:
    return row.place.lanes


def format_costs(machines: Sequence[MachineCosts]) -> list[str]:
    """Format the costs as lines, machine by machine."""
    text_lines: list[str] = []
    for costs in machines:
        text_lines += [*_format_heading(costs), "", *_format_table(costs), *_format_fitting(costs), ""]
    return text_lines[:-1]


def _format_heading(costs: MachineCosts) -> list[str]:
    machine = costs.machine
    repetitions = costs.cost["repetitions"]
    text_lines = [
        f"time and memory, measured on {machine['host']}: {machine['device']}, "
        f"{machine['processor']}, {machine['threads']} of {machine['cores']} cores",
        f"{costs.done} of {costs.due} repetitions; {costs.busy} began while something else ran (load average)",
        f"prompts of random tokens, {costs.cost['new_tokens']} new tokens a lane; no verdict depends on this",
    ]
    if repetitions < MIN_REPETITIONS:
        text_lines.append(f"{repetitions} repetitions: too few for an interval, which takes {MIN_REPETITIONS} or more")
    else:
        text_lines.append(
            "[95 % intervals] over repetitions of this session, each taken alone; ratios to the full cache "
            "are paired within a repetition"
        )
    return text_lines


HEAD = (
    "model",
    "prompt",
    "lanes",
    "budget",
    "arm",
    "prefill s",
    "x full",
    "decode tok/s",
    "x full",
    "cpu s x full",
    "slots KiB",
)


def _format_table(costs: MachineCosts) -> list[str]:
    rows = []
    for row in costs.rows:
        point = row.place
        cells = (point.model, str(point.prompt_tokens), str(point.lanes), point.budget, point.arm)
        if row.seconds is None or row.rates is None:
            state = next(state for state, count in row.ended.items() if count)
            rows.append((*cells, state, "", "", "", "", ""))
            continue
        rows.append(
            (
                *cells,
                _format_level(row.seconds[PREFILL], ".3f"),
                "" if row.overhead is None else _format_level(row.overhead, ".2f"),
                _format_level(row.rates[DECODE], ",.0f"),
                "" if row.ratio is None else _format_level(row.ratio[DECODE], ".2f"),
                "" if row.work is None or costs.machine["device"] != "cpu" else _format_level(row.work, ".2f"),
                f"{row.memory['room_peak'] / 1024:,.0f}",
            )
        )
    return format_columns(HEAD, rows)


def _format_fitting(costs: MachineCosts) -> list[str]:
    if "fits_in" not in costs.cost and all(sum(row.ended.values()) == row.ended["ok"] for row in costs.rows):
        return []
    limit = costs.cost.get("fits_in")
    within = f" within {limit:,} bytes" if limit else ""
    text_lines = ["", f"the largest registered number of lanes that fits{within}, and its tokens a second of decoding"]
    for batch in costs.largest:
        label = f"{batch.model}, {batch.prompt_tokens} tokens, {batch.budget}, {batch.arm}"
        if batch.lanes is None or batch.rate is None:
            text_lines.append(f"{label}: none")
            continue
        remark = ", the largest number that was tried" if batch.lanes == batch.of else ""
        ratio = (
            ""
            if batch.ratio is None
            else f", {_format_level(batch.ratio, '.2f')} x the full cache at its own largest number"
        )
        text_lines.append(f"{label}: {batch.lanes} lanes{remark}: {_format_level(batch.rate, ',.0f')}{ratio}")
    return text_lines


def _format_level(level: GeometricMean, spec: str) -> str:
    mean = format(level.mean, spec)
    if level.low is None or level.high is None:
        return mean
    return f"{mean} [{format(level.low, spec)}, {format(level.high, spec)}]"
