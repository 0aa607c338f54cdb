"""Measured time and memory as tables: rates, ratios to the full cache, peaks, the largest batch that fits.

Reads cost/*.jsonl by their documented format (docs/cost.md); kv-prereg audit verifies them. This module knows
no accuracies and gives no verdict.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from analysis.output.told import columns
from analysis.rules.rule import FULL
from analysis.stats.paired_ratios import FEWEST, Level, level_of, ratio_of
from analysis.studies import plain_files
from analysis.studies.plain_files import RecordError, read, refuse_other

__all__ = [
    "DECODE",
    "PREFILL",
    "Largest",
    "Measured",
    "Place",
    "Row",
    "busy",
    "lines",
    "measured",
    "peak",
    "protocol_of",
]

FOLDER = "cost"
BUSY = 0.5  # load average above the threads of the study that means that something else ran
PREFILL, DECODE = "prefill", "decode"


class NothingMeasured(RecordError):
    """A study without measured time and memory; the message says what to do about it."""


class Place(NamedTuple):
    """The setting of a measurement. budget: "full" for an arm that never evicts."""

    model: str
    prompt_tokens: int
    lanes: int
    arm: str
    budget: str


class Row(NamedTuple):
    """The measurements of one point over its repetitions; levels are None if no repetition succeeded.

    seconds, rates: of prefill and decode; rates are tokens a second. ratio: of the rate to that of the full
    cache at the same length and lanes, within repetitions; None for the full cache itself and without one.
    peaks: bytes, by phase and then as `cost/*.jsonl` names them, maximum over repetitions. memory: fields of
    the same name, from the first repetition that succeeded.
    """

    place: Place
    slots: int | None
    ended: Mapping[str, int]
    seconds: Mapping[str, Level] | None
    rates: Mapping[str, Level] | None
    ratio: Mapping[str, Level] | None
    overhead: Level | None  # prefill seconds over those of the full cache
    work: Level | None  # of decoding: seconds of the process, over those of the full cache
    peaks: Mapping[str, Mapping[str, int]]
    memory: Mapping[str, int]
    fits: bool


class Largest(NamedTuple):
    """The largest registered number of lanes that fits, and its decoding rate; ratio: to the full cache at
    its own largest number. lanes: None if none fits.
    """

    model: str
    prompt_tokens: int
    arm: str
    budget: str
    lanes: int | None
    of: int  # the largest registered number
    rate: Level | None
    ratio: Level | None


class Measured(NamedTuple):
    """The measurements of one machine."""

    name: str
    machine: Mapping[str, Any]
    cost: Mapping[str, Any]
    due: int
    done: int
    busy: int
    rows: list[Row]
    largest: list[Largest]


def protocol_of(folder: Path) -> dict[str, Any]:
    """Return the protocol's content in the lock. Raises RecordError."""
    try:
        found: dict[str, Any] = json.loads(read(folder / "lock.json"))["protocol"]["content"]
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise RecordError(f"{folder}: lock.json cannot be read ({type(problem).__name__})") from None
    return found


def measured(folder: Path) -> list[Measured]:
    """Read the costs by machine. Raises RecordError if nothing was measured, and for an unknown format."""
    folder = Path(folder)
    refuse_other(folder)
    protocol = protocol_of(folder)
    if "cost" not in protocol:
        raise NothingMeasured(f"{folder}: registers no [cost]; write one into a protocol before it is locked")
    found = []
    for name, stored in groupby(plain_files.lines(folder / FOLDER), itemgetter(0)):
        try:
            first, *rest = [json.loads(line)["body"] for *_, line in stored if line.endswith(b"\n")]
            found.append(_measured(name, first["machine"], rest, protocol))
        except (ValueError, KeyError, TypeError) as problem:
            raise RecordError(
                f"{folder}: {FOLDER}/{name} is not of the documented format ({type(problem).__name__}: "
                f"{problem}); run: kv-prereg audit {folder}"
            ) from None
    if not any(one.rows for one in found):
        raise NothingMeasured(f"{folder}: nothing was measured yet; run: kv-prereg cost {folder}")
    return [one for one in found if one.rows]


def _measured(
    name: str, machine: Mapping[str, Any], bodies: Sequence[Any], protocol: Mapping[str, Any]
) -> Measured:
    by_place: dict[Place, dict[int, Any]] = defaultdict(dict)
    for body in bodies:
        by_place[Place(**body["point"])][body["repetition"]] = body
    cost = protocol["cost"]
    order = {arm: place for place, arm in enumerate(cost.get("arms") or protocol["arms"])}
    budgets = [FULL, *map(str, cost.get("budgets") or protocol["budgets"])]
    models = protocol["models"]

    def key(place: Place) -> tuple[int, int, int, int, int]:
        budget = budgets.index(place.budget)
        return models.index(place.model), place.prompt_tokens, place.lanes, budget, order[place.arm]

    places = sorted(by_place, key=key)
    rows = [_row(place, by_place, cost.get("fits_in")) for place in places]
    return Measured(
        name,
        machine,
        cost,
        due=_due(protocol, {place.arm for place in places if place.budget == FULL}),
        done=len(bodies),
        busy=sum(busy(body, machine) for body in bodies),
        rows=rows,
        largest=list(_largest(rows, by_place, cost)),
    )


def _due(protocol: Mapping[str, Any], whole: set[str]) -> int:
    cost = protocol["cost"]
    budgets = len(cost.get("budgets") or protocol["budgets"])
    arms = cost.get("arms") or list(protocol["arms"])
    each = sum(1 if arm in whole else budgets for arm in arms)
    return int(
        each * len(protocol["models"]) * len(cost["prompt_tokens"]) * len(cost["lanes"]) * cost["repetitions"]
    )


def busy(body: Mapping[str, Any], machine: Mapping[str, Any]) -> bool:
    """Return whether something else ran before this repetition. The load average includes our own threads in
    all repetitions but the first.
    """
    return "load" in body and float(body["load"]["before"]) > machine["threads"] + BUSY


def _row(place: Place, by_place: Mapping[Place, Mapping[int, Any]], limit: int | None) -> Row:
    bodies = by_place[place]
    ok = {number: body for number, body in bodies.items() if body["state"] == "ok"}
    ended = {
        state: sum(body["state"] == state for body in bodies.values())
        for state in ("ok", "out of memory", "failed")
    }
    slots = next(iter(bodies.values()))["slots"]
    if not ok:
        return Row(place, slots, ended, None, None, None, None, None, {}, {}, False)
    whole = _whole(place, by_place)
    memory = next(iter(ok.values()))["memory"]
    peaks = {phase: _peaks(phase, ok.values()) for phase in (PREFILL, DECODE)}
    return Row(
        place,
        slots,
        ended,
        {phase: level_of(_values(ok, phase, "seconds")) for phase in (PREFILL, DECODE)},
        {phase: level_of(_values(ok, phase, "tokens_per_second")) for phase in (PREFILL, DECODE)},
        _ratios(ok, whole) if whole else None,
        _paired(ok, whole, PREFILL, "seconds") if whole else None,
        _paired(ok, whole, DECODE, "cpu_seconds") if whole else None,
        peaks,
        memory,
        fits=ended["ok"] == len(bodies) and (limit is None or peak(peaks, memory) <= limit),
    )


def peak(peaks: Mapping[str, Mapping[str, int]], memory: Mapping[str, int]) -> int:
    """Return the bytes that are compared with `fits_in`: on CUDA the peak reserved memory, on a CPU the peak
    of keys and values.
    """
    reserved = [own["reserved_peak"] for own in peaks.values() if "reserved_peak" in own]
    return max(reserved, default=memory["room_peak"])


def _peaks(phase: str, bodies: Any) -> dict[str, int]:
    names = ("rss_peak", "allocated_peak", "reserved_peak")
    return {
        name: max(body[phase][name] for body in bodies)
        for name in names
        if all(name in body[phase] for body in bodies)
    }


def _whole(place: Place, by_place: Mapping[Place, Mapping[int, Any]]) -> dict[int, Any]:
    """Return the successful repetitions of the full cache at the same setting; none for the full cache
    itself.
    """
    if place.budget == FULL:
        return {}
    for other, bodies in by_place.items():
        if other.budget == FULL and other[:3] == place[:3]:
            return {number: body for number, body in bodies.items() if body["state"] == "ok"}
    return {}


def _values(bodies: Mapping[int, Any], phase: str, name: str) -> list[float]:
    return [float(body[phase][name]) for body in bodies.values()]


def _ratios(own: Mapping[int, Any], whole: Mapping[int, Any]) -> dict[str, Level] | None:
    found = {phase: _paired(own, whole, phase, "tokens_per_second") for phase in (PREFILL, DECODE)}
    return {phase: level for phase, level in found.items() if level is not None} or None


def _paired(own: Mapping[int, Any], other: Mapping[int, Any], phase: str, name: str) -> Level | None:
    both = sorted(own.keys() & other.keys())
    if not both:
        return None
    values, others = ([float(each[number][phase][name]) for number in both] for each in (own, other))
    values, others = ([float(each[number][phase][name]) for number in both] for each in (own, other))
    return ratio_of(values, others)


def _largest(
    rows: Sequence[Row], by_place: Mapping[Place, Mapping[int, Any]], cost: Mapping[str, Any]
) -> Iterator[Largest]:
    groups: dict[tuple[str, int, str, str], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.place.model, row.place.prompt_tokens, row.place.arm, row.place.budget].append(row)
    most: dict[tuple[str, int, str, str], Row | None] = {
        key: max((row for row in own if row.fits), key=_lanes, default=None) for key, own in groups.items()
    }
    for (model, tokens, arm, budget), best in most.items():
        rate = best.rates[DECODE] if best is not None and best.rates else None
        whole = next(
            (
                other
                for (its_model, its_tokens, _, its_budget), other in most.items()
                if (its_model, its_tokens, its_budget) == (model, tokens, FULL)
            ),
            None,
        )
        ratio = None
        if best is not None and whole is not None and budget != FULL:
            ratio = _paired(by_place[best.place], by_place[whole.place], DECODE, "tokens_per_second")
        lanes = None if best is None else best.place.lanes
        yield Largest(model, tokens, arm, budget, lanes, max(cost["lanes"]), rate, ratio)


def _lanes(row: Row) -> int:
    return row.place.lanes


def lines(found: Sequence[Measured]) -> list[str]:
    """Format the costs as lines, machine by machine."""
    said: list[str] = []
    for one in found:
        said += [*_heading(one), "", *_table(one), *_fitting(one), ""]
    return said[:-1]


def _heading(one: Measured) -> list[str]:
    machine = one.machine
    few = one.cost["repetitions"]
    said = [
        f"time and memory, measured on {machine['host']}: {machine['device']}, "
        f"{machine['processor']}, {machine['threads']} of {machine['cores']} cores",
        f"{one.done} of {one.due} repetitions; {one.busy} began while something else ran (load average)",
        f"prompts of made-up tokens, {one.cost['new_tokens']} new tokens a lane; no verdict depends on this",
    ]
    if few < FEWEST:
        said.append(f"{few} repetitions: too few for an interval, which takes {FEWEST} or more")
    else:
        said.append(
            "[95 % intervals] over repetitions of this session, each by itself; ratios to the full cache are "
            "paired within a repetition"
        )
    return said


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


def _table(one: Measured) -> list[str]:
    rows = []
    for row in one.rows:
        place = row.place
        cells = (place.model, str(place.prompt_tokens), str(place.lanes), place.budget, place.arm)
        if row.seconds is None or row.rates is None:
            state = next(state for state, count in row.ended.items() if count)
            rows.append((*cells, state, "", "", "", "", ""))
            continue
        rows.append(
            (
                *cells,
                _level(row.seconds[PREFILL], ".3f"),
                "" if row.overhead is None else _level(row.overhead, ".2f"),
                _level(row.rates[DECODE], ",.0f"),
                "" if row.ratio is None else _level(row.ratio[DECODE], ".2f"),
                "" if row.work is None or one.machine["device"] != "cpu" else _level(row.work, ".2f"),
                f"{row.memory['room_peak'] / 1024:,.0f}",
            )
        )
    return columns(HEAD, rows)


def _fitting(one: Measured) -> list[str]:
    if "fits_in" not in one.cost and all(sum(row.ended.values()) == row.ended["ok"] for row in one.rows):
        return []
    limit = one.cost.get("fits_in")
    within = f" within {limit:,} bytes" if limit else ""
    said = ["", f"the most of the registered lanes that fit{within}, and tokens a second of decoding there"]
    for each in one.largest:
        where = f"{each.model}, {each.prompt_tokens} tokens, {each.budget}, {each.arm}"
        if each.lanes is None or each.rate is None:
            said.append(f"{where}: none")
            continue
        more = ", the most that were tried" if each.lanes == each.of else ""
        ratio = "" if each.ratio is None else f", {_level(each.ratio, '.2f')} x full at its own most"
        said.append(f"{where}: {each.lanes} lanes{more}: {_level(each.rate, ',.0f')}{ratio}")
    return said


def _level(level: Level, how: str) -> str:
    mean = format(level.mean, how)
    if level.low is None or level.high is None:
        return mean
    return f"{mean} [{format(level.low, how)}, {format(level.high, how)}]"
