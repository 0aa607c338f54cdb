"""A study as a table, a row for each registered lane, from its lock and records in their documented format."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.judgement import opened_lanes
from analysis.judgement.untrusted_files import RecordError
from protocol.formats import runners
from protocol.formats.citations import record_lock
from protocol.formats.looks import read_looks
from protocol.formats.record_fields import SCORE, STATES, count_evictions
from protocol.formats.vocabulary import FULL, RERUN_SUFFIX

LANE_COLUMNS = ["model", "task", "budget", "arm", "seed", "problem"]
_cell_of = itemgetter(*LANE_COLUMNS[:-1])
EXCLUDED, NOT_RUN = "excluded", "not run"  # states of a lane; the second means that it has no record
SCORED = "scored"  # the grade of an answer with a score from 0 to 1
GRADED = {"correct", "wrong", "no answer", SCORED}
MEASURED_COLUMNS = ["tokens", "mean_slots", "peak_slots", "mean_bytes", "state_bytes", "evictable_bytes"]
OPTIONAL_COLUMNS = ["disagrees", "apart", "granted", "evicted", "right", "reads"]  # columns that are NaN for some lanes
TEXT_COLUMNS = ("state", "grade", "stop")  # text columns
SPLIT_BY_PHASE = {"confirm": "confirm", "probe": "dev"}  # the split whose problems a phase runs
TIMEOUT = "timeout"  # verification timed out: counts as not correct, else one such lane would void a study
UNGRADED = {"error"}
KNOWN_GRADES = GRADED | UNGRADED | {TIMEOUT}
LocatedRecords: TypeAlias = Iterable[tuple[str, Mapping[str, Any]]]  # location and content of each record


class Study(NamedTuple):
    """A lock and one row for every registered lane.

    lanes: columns LANE_COLUMNS; state ("ok", "failed", "excluded", or "not run" without a record); grade; correct (1.0,
    0.0, a score, or NaN for a lane without a grade); stop; tokens; mean_slots and peak_slots per KV head and layer;
    mean_bytes; state_bytes; evictable_bytes: mean_bytes without the windows of sliding layers, which are the same in
    every arm. Measurements are NaN unless the state is "ok". An excluded problem is excluded in every lane of its model
    that has a record. disagrees: 1.0 or 0.0 if a second grader graded the text too, NaN if none did or the first gave
    no grade; apart: the distance of two scores. right: where an outcome is registered, what the answer of the full
    cache is worth, which agrees with itself (correct is 1); else NaN. granted: mean over eviction steps of the slots
    per KV head and layer that the schedule allowed; NaN without eviction steps and in older records. evicted: number of
    eviction steps that removed slots. reads: slots per KV head and layer that a new token read; NaN where they are all
    that were held. cluster: of the problem, the problem itself if its task has none; present if any task has clusters.
    """

    registration: str  # SHA-256 of the lock
    lock: dict[str, Any]
    lanes: pd.DataFrame

    def by_arm(self) -> dict[tuple[str, ...], pd.DataFrame]:
        """Return the lanes of each (model, task, budget, arm), in grid order."""
        return dict(list(self.lanes.groupby(["model", "task", "budget", "arm"], sort=False)))

    def columns_by_arm(self) -> dict[tuple[str, ...], dict[str, NDArray[Any]]]:
        """Return the same with each column as an array, which is much faster to read than pandas."""
        columns = {str(name): self.lanes[name].to_numpy() for name in self.lanes}
        positions = self.lanes.groupby(["model", "task", "budget", "arm"], sort=False).indices
        return {
            arm_key: {name: column[arm_positions] for name, column in columns.items()}
            for arm_key, arm_positions in positions.items()
        }

    @property
    def missing(self) -> pd.DataFrame:
        """The lanes without a grade: never run, failed, or ended by an error of the grader."""
        return self.lanes[is_ungraded(self.lanes)]


def has_scores(lanes: pd.DataFrame) -> bool:
    """Return whether any answer has a score other than 0 and 1; means are then not shares of correct answers."""
    return not lanes["correct"].dropna().isin((0.0, 1.0)).all()


def slots_read(lanes: pd.DataFrame) -> "pd.Series[float]":
    """Return for each lane the mean slots that a new token read: those that it held, unless its record says fewer."""
    return lanes["reads"].fillna(lanes["mean_slots"])


def is_ungraded(lanes: pd.DataFrame) -> "pd.Series[bool]":
    """Return a mask [lane] of lanes that are registered, not excluded, and without a grade."""
    return lanes["state"].isin(["failed", NOT_RUN]) | lanes["grade"].isin(UNGRADED)


def build_study(folder: Path, registration: str, lock: dict[str, Any], records: LocatedRecords) -> Study:
    """Build the study of `read_study` from a parsed lock and confirm records; of one with looks, as far as the last
    look with a record. folder: for messages.
    """
    cells = [tuple(cell) for cell in lock["grid"]]
    lanes = _lane_frame(folder, "confirm", registration, lock, records, cells)
    if not read_looks(lock):
        return Study(registration, lock, lanes)
    return Study(registration, *opened_lanes.keep_reached(lock, lanes, NOT_RUN))


def build_probe(folder: Path, registration: str, lock: dict[str, Any], records: LocatedRecords) -> Study:
    """Build the study of `read_probe` from a parsed lock and probe records. folder: for messages."""
    content = lock["protocol"]["content"]
    if "sweep" not in content:
        raise RecordError(f"{folder}: protocol: has no sweep, so that there is nothing to select")
    sweep = content["sweep"]
    cells = [
        (model, task["name"], budget, arm, seed)
        for model in content["models"]
        for task in content["tasks"]
        for arm in (*sweep["candidates"], sweep["baseline"], sweep["baseline"] + RERUN_SUFFIX)
        for budget in content["budgets"]
        for seed in sweep["seeds"]
    ]
    return Study(registration, lock, _lane_frame(folder, "probe", registration, lock, records, cells))


def build_development(folder: Path, registration: str, lock: dict[str, Any], records: LocatedRecords) -> Study:
    """Build the study of `read_development` from a parsed lock and probe records. folder: for messages."""
    content = lock["protocol"]["content"]
    if "sweep" in content:
        return build_probe(folder, registration, lock, records)
    first = content["decision"]["against"][0]
    rerun_cells = [[*head, arm + RERUN_SUFFIX, seed] for *head, arm, seed in lock["grid"] if arm == first]
    cells = [tuple(cell) for cell in (*lock["grid"], *rerun_cells)]
    return Study(registration, lock, _lane_frame(folder, "probe", registration, lock, records, cells))


def _lane_frame(
    folder: Path,
    phase: str,
    registration: str,
    lock: Mapping[str, Any],
    records: LocatedRecords,
    cells: Sequence[tuple[Any, ...]],
) -> pd.DataFrame:
    """Build the table of lanes. cells: as registered; each has all problems of its task."""
    content = lock["protocol"]["content"]
    is_measured, has_outcome = runners.TABLE not in content, "outcome" in content
    longest, table = _max_prompt_tokens(lock["protocol"]["content"]), _LaneTable(lock, SPLIT_BY_PHASE[phase], cells)
    unregistered: set[tuple[Any, ...]] = set()
    is_excluded_by_problem: dict[tuple[Any, ...], bool] = {}
    inconsistent = None  # a lane whose exclusion differs from other lanes of its problem
    for where, record in records:
        try:
            body = record["body"]
            if body["phase"] != phase:
                continue
            is_held_out, arm = phase == "confirm", body["cell"]["arm"]
            locked = record_lock(lock, registration, arm) if is_held_out else registration
            if body["registration"] != locked:
                raise RecordError(f"{where}: registration: is not the lock of these lanes, {locked[:12]}")
            lane = (*_cell_of(body["cell"]), body["problem"])
            position = table.position(lane)
            if lane in unregistered or (position is not None and table.filled[position]):
                raise RecordError(f"{where}: second record of {_lane_name(lane)}; each lane may be recorded only once")
            _check_exclusion(body, longest, where)
            row = _lane_row(body, where, is_measured=is_measured)
            if has_outcome and lane[2] == FULL and row["correct"] == row["correct"]:
                row |= {"right": row["correct"], "correct": 1.0}
            if position is None:
                unregistered.add(lane)
                continue
            table.fill(position, row)
            is_excluded, problem_key = row["state"] == EXCLUDED, (lane[0], lane[1], lane[-1])
            if is_excluded_by_problem.setdefault(problem_key, is_excluded) != is_excluded and inconsistent is None:
                inconsistent = lane
        except (KeyError, TypeError) as error:
            raise RecordError(f"{where}: not a record of the documented format: {error}") from None
    if unregistered:
        raise RecordError(f"records: {_lane_name(min(unregistered))} is not in the registered grid")
    if not any(table.filled):
        raise RecordError(f"{folder}: no {phase} records; run: kv-prereg {phase} {folder}")
    if inconsistent is not None:
        raise RecordError(
            f"records: {_lane_name(inconsistent)}: is excluded in only some lanes, although its prompt is "
            "the same in all"
        )
    return table.to_frame()


class _LaneTable:
    """The rows of a study, filled in any order of records; stored by column, since a million dictionaries
    take gigabytes.
    """

    def __init__(self, lock: Mapping[str, Any], split: str, cells: Sequence[tuple[Any, ...]]) -> None:
        self._lock, self._cells = lock, cells
        self._problems = {cell[1]: lock["items"][cell[1]][split] for cell in cells}
        self._positions = {
            task: {problem: position for position, problem in enumerate(dict.fromkeys(problems))}
            for task, problems in self._problems.items()
        }
        self._starts: dict[tuple[Any, ...], int] = {}
        count = 0
        for cell in dict.fromkeys(cells):
            self._starts[cell] = count
            count += len(self._positions[cell[1]])
        self.filled = bytearray(count)
        self._text_columns: dict[str, list[str | None]] = {name: [None] * count for name in TEXT_COLUMNS}
        self._text_columns["state"] = [NOT_RUN] * count
        self._number_columns = {
            name: np.full(count, np.nan) for name in ("correct", *OPTIONAL_COLUMNS, *MEASURED_COLUMNS)
        }
        self._texts: dict[str, str] = {}

    def position(self, lane: tuple[Any, ...]) -> int | None:
        """Return the row of a lane; None if it is not registered."""
        start, offset = self._starts.get(lane[:-1]), self._positions.get(lane[1], {}).get(lane[-1])
        return None if start is None or offset is None else start + offset

    def fill(self, position: int, row: Mapping[str, Any]) -> None:
        self.filled[position] = True
        for name, words in self._text_columns.items():
            text = row[name]
            words[position] = text if text is None else self._texts.setdefault(text, text)
        for name, numbers in self._number_columns.items():
            numbers[position] = row[name]

    def to_frame(self) -> pd.DataFrame:
        """Return the table, in the order of the cells and then of the problems."""
        cell_problems = [self._problems[cell[1]] for cell in self._cells]
        registered_positions = {
            task: np.array([positions[problem] for problem in self._problems[task]], dtype=np.int64)
            for task, positions in self._positions.items()
        }
        order = np.concatenate([self._starts[cell] + registered_positions[cell[1]] for cell in self._cells])
        columns: dict[str, Any] = {
            name: [value for value, problems in zip(values, cell_problems, strict=True) for _ in problems]
            for name, values in zip(LANE_COLUMNS[:-1], zip(*self._cells, strict=True), strict=True)
        }
        columns["problem"] = [problem for problems in cell_problems for problem in problems]
        columns |= {name: [words[position] for position in order] for name, words in self._text_columns.items()}
        columns |= {name: numbers[order] for name, numbers in self._number_columns.items()}
        items = self._lock["items"]
        if any("clusters" in item for item in items.values()):
            named = {task: items[task].get("clusters", {}) for task in self._problems}
            lanes = zip(columns["task"], columns["problem"], strict=True)
            columns["cluster"] = [named[task].get(problem, problem) for task, problem in lanes]
        return pd.DataFrame(columns)


def _max_prompt_tokens(content: Mapping[str, Any]) -> int | None:
    """Return the longest prompt, in tokens, that the registered exclusion allows; None without one."""
    exclude = content.get("exclude")
    if exclude is None:
        return None
    if set(exclude) != {"prompt_tokens_above"}:
        raise RecordError(f"exclude: {', '.join(sorted(exclude))}: is unknown; write prompt_tokens_above")
    longest: int = exclude["prompt_tokens_above"]
    return longest


def _check_exclusion(body: dict[str, Any], longest: int | None, where: str) -> None:
    """Raise RecordError unless a lane is excluded exactly if the registered predicate says so."""
    excluded = body["state"] == EXCLUDED
    if longest is None:
        if excluded:
            raise RecordError(f"{where}: state: 'excluded', but the lock registers no exclusion")
        return
    tokens = body["prompt_tokens"]
    if isinstance(tokens, bool) or not isinstance(tokens, int):
        raise RecordError(f"{where}: prompt_tokens: {tokens!r} is not a whole number")
    if excluded != (tokens > longest):
        covered = "are not above" if excluded else "are above"
        raise RecordError(
            f"{where}: state: {body['state']!r}, but its {tokens} prompt tokens {covered} {longest}, the "
            "longest prompt that the lock includes"
        )


def _lane_row(body: dict[str, Any], where: str, *, is_measured: bool) -> dict[str, Any]:
    """Return the row of a lane. is_measured: whether this project decoded it, and so measured its tokens and memory."""
    state, grade, cache = body["state"], body["grade"], body["cache"]
    if state not in STATES:
        raise RecordError(f"{where}: state: {state!r} is unknown")
    row: dict[str, Any] = {"state": state, "grade": grade, "correct": math.nan, "stop": body["stop"]}
    row |= dict.fromkeys(OPTIONAL_COLUMNS, math.nan)
    if state != "ok":
        return row | dict.fromkeys(MEASURED_COLUMNS, math.nan)
    if grade not in KNOWN_GRADES:
        raise RecordError(f"{where}: grade: {grade!r} is unknown")
    if grade == TIMEOUT:
        row["correct"] = 0.0
    if grade in GRADED:
        row["correct"] = _parse_credit(grade, body.get("score"), where)
        if "grade_second" in body:
            row |= _second_grade(grade, row["correct"], body, where)
    if not is_measured:
        return row | dict.fromkeys(MEASURED_COLUMNS, math.nan)
    measured = [body["tokens"], *(cache[name] for name in ("mean", "peak", "mean_bytes", "state_bytes"))]
    row |= {name: _parse_finite(value, name, where) for name, value in zip(MEASURED_COLUMNS, measured, strict=False)}
    row["evictable_bytes"] = row["mean_bytes"] - _parse_finite(cache.get("window_bytes", 0), "window_bytes", where)
    for name in ("prefill_end", "peak_bytes"):
        _parse_finite(cache[name], name, where)
    if granted := cache.get("granted"):
        row["granted"] = sum(_parse_finite(amount, "granted", where) for amount in granted) / len(granted)
    if "reads" in cache:
        row["reads"] = _parse_finite(cache["reads"], "reads", where)
    try:
        row["evicted"] = float(count_evictions(cache.get("events", ())))
    except (TypeError, ValueError):
        raise RecordError(f"{where}: events: is not a list of [step, slots before, slots after]") from None
    return row


def _parse_credit(grade: str, score: Any, where: str) -> float:
    if (grade == SCORED) != (score is not None):
        raise RecordError(f"{where}: score: {str(score)[:40]!r} does not fit the grade {grade!r}")
    if score is None:
        return float(grade == "correct")
    if not isinstance(score, str) or not re.fullmatch(SCORE, score):
        raise RecordError(f"{where}: score: {str(score)[:40]!r} is not a number from 0 to 1 with six decimal places")
    return float(score)


def _second_grade(grade: str, credit: float, body: Mapping[str, Any], where: str) -> dict[str, float]:
    """Compare the second grade with the first; scores disagree if they differ."""
    other = body["grade_second"]
    if SCORED not in (grade, other):
        return {"disagrees": float(grade != other)}
    if other not in GRADED:
        return {"disagrees": 1.0}
    distance = round(abs(credit - _parse_credit(other, body.get("score_second"), where)), 6)
    return {"disagrees": float(distance > 0), "apart": distance}


def _parse_finite(value: Any, name: str, where: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise RecordError(f"{where}: {name}: {str(value)[:40]!r} is not a finite number")
    return number


def _lane_name(lane: tuple[Any, ...]) -> str:
    return " ".join(f"{name}={value}" for name, value in zip(LANE_COLUMNS, lane, strict=True))
