"""The records of a study as a table, read by their documented format (docs/records.md) and nothing else."""

import hashlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pandas as pd

__all__ = ["AGAIN", "LANE", "RecordError", "Study", "document", "probe", "read"]

AGAIN = " (again)"  # ends the name of an arm that a probe ran a second time
LANE = ["model", "task", "budget", "arm", "seed", "problem"]
GRADED = {"correct", "wrong", "no answer"}
MEASURED = ["tokens", "mean_slots", "peak_slots", "mean_bytes", "state_bytes"]
TIMEOUT = "timeout"  # an answer that nobody could verify in time: not correct, or one such would void a study
UNGRADED = {"error"}
FOLDERS = {"confirm": "records", "probe": "probe"}  # of the records of a phase


class RecordError(ValueError):
    """A lock or record that is not what it claims to be; one line names the file, line and field."""


class Study(NamedTuple):
    """A lock and one row for every lane that it registered.

    lanes: columns LANE; state ("ok", "failed", "excluded", or "not run" where there is no record); grade;
    correct (1.0, 0.0, or NaN for a lane without a grade); stop; tokens; mean_slots and peak_slots per KV head
    and layer; mean_bytes; state_bytes. Measurements are NaN unless the state is "ok". disagrees: 1.0 or 0.0
    where a second grader read the text too, NaN where none did or the first gave no grade.
    """

    registration: str  # SHA-256 of the lock
    lock: dict[str, Any]
    lanes: pd.DataFrame

    def by_arm(self) -> dict[tuple[str, ...], pd.DataFrame]:
        """The lanes of each (model, task, budget, arm), in the order of the grid."""
        return dict(list(self.lanes.groupby(["model", "task", "budget", "arm"], sort=False)))

    @property
    def missing(self) -> pd.DataFrame:
        """The lanes without a grade: never run, failed, excluded, or ended by an error of the grader."""
        return self.lanes[self.lanes["correct"].isna()]


def read(folder: Path) -> Study:
    """Read FOLDER/lock.json and the confirm records in FOLDER/records/*.jsonl.

    Raises RecordError for a folder without a lock or a single record, a line that is not JSON, NaN or
    infinity, an unknown grade or state, a second record of a lane, and a record of another registration or of
    no registered lane. A registered lane without a record is a row with the state "not run": the registered
    rule decides what it does.
    """
    registration, lock = document(Path(folder) / "lock.json")
    lanes = [(*cell, problem) for cell in lock["grid"] for problem in lock["items"][cell[1]]["confirm"]]
    return Study(registration, lock, _table(Path(folder), "confirm", registration, lanes))


def probe(folder: Path) -> Study:
    """The lanes of a sweep: its candidates, its baseline and its baseline again, on the development problems,
    from FOLDER/probe/*.jsonl; read as strictly as `read` does.
    """
    registration, lock = document(Path(folder) / "lock.json")
    content = lock["protocol"]["content"]
    if "sweep" not in content:
        raise RecordError(f"{folder}: protocol: has no sweep; there is nothing to select")
    sweep = content["sweep"]
    lanes = [
        (model, task["name"], budget, arm, seed, problem)
        for model in content["models"]
        for task in content["tasks"]
        for arm in (*sweep["candidates"], sweep["baseline"], sweep["baseline"] + AGAIN)
        for budget in content["budgets"]
        for seed in sweep["seeds"]
        for problem in lock["items"][task["name"]]["dev"]
    ]
    return Study(registration, lock, _table(Path(folder), "probe", registration, lanes))


def _table(folder: Path, phase: str, registration: str, registered: list[tuple[Any, ...]]) -> pd.DataFrame:
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for where, record in _lines(folder / FOLDERS[phase]):
        try:
            body = record["body"]
            if body["phase"] != phase:
                continue
            if body["registration"] != registration:
                raise RecordError(f"{where}: registration: is not this lock, {registration[:12]}")
            lane = (*(body["cell"][name] for name in LANE[:-1]), body["problem"])
            if lane in rows:
                raise RecordError(f"{where}: second record of {_name(lane)}; a lane is recorded once")
            rows[lane] = _row(body, where)
        except (KeyError, TypeError) as error:
            raise RecordError(f"{where}: not a record of the documented format: {error}") from None
    if strange := rows.keys() - set(registered):
        raise RecordError(f"records: {_name(min(strange))} is not in the registered grid")
    if not rows:
        raise RecordError(f"{folder}: no {phase} records; run: python -m protocol.{phase} {folder}")
    absent: dict[str, Any] = {"state": "not run", "grade": None, "correct": math.nan, "stop": None}
    absent |= dict.fromkeys((*MEASURED, "disagrees"), math.nan)
    return pd.DataFrame([dict(zip(LANE, lane, strict=True)) | rows.get(lane, absent) for lane in registered])


def _row(body: dict[str, Any], where: str) -> dict[str, Any]:
    state, grade, cache = body["state"], body["grade"], body["cache"]
    if state not in {"ok", "failed", "excluded"}:
        raise RecordError(f"{where}: state: {state!r} is unknown")
    row: dict[str, Any] = {"state": state, "grade": grade, "correct": math.nan, "stop": body["stop"]}
    row["disagrees"] = math.nan
    if state != "ok":
        return row | dict.fromkeys(MEASURED, math.nan)
    if grade not in GRADED | UNGRADED | {TIMEOUT}:
        raise RecordError(f"{where}: grade: {grade!r} is unknown")
    if grade == TIMEOUT:
        row["correct"] = 0.0
    if grade in GRADED:
        row["correct"] = float(grade == "correct")
        if "grade_second" in body:
            row["disagrees"] = float(grade != body["grade_second"])
    measured = [body["tokens"], *(cache[name] for name in ("mean", "peak", "mean_bytes", "state_bytes"))]
    for name, value in zip(MEASURED, measured, strict=True):
        try:
            row[name] = float(value)
        except (TypeError, ValueError):
            row[name] = math.nan
        if not math.isfinite(row[name]):
            raise RecordError(f"{where}: {name}: {value!r} is not a finite number")
    return row


def document(path: Path) -> tuple[str, dict[str, Any]]:
    """Digest and content of lock.json or selection.json."""
    try:
        data = path.read_bytes().removesuffix(b"\n")
    except FileNotFoundError:
        raise RecordError(f"{path}: missing; name a registered folder") from None
    return hashlib.sha256(data).hexdigest(), _json(data, str(path))


def _lines(records: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted(records.glob("*.jsonl")):
        for number, line in enumerate(path.read_bytes().splitlines(), 1):
            where = f"{path.name}:{number}"
            yield where, _json(line, where)


def _json(data: bytes, where: str) -> dict[str, Any]:
    def refuse(text: str) -> NoReturn:
        raise RecordError(f"{where}: {text}: numbers are integers, decimals are strings")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        held = dict(pairs)
        if len(held) < len(pairs):
            raise RecordError(f"{where}: a key stands twice in one object")
        return held

    try:
        value = json.loads(data, parse_constant=refuse, parse_float=refuse, object_pairs_hook=once)
    except UnicodeDecodeError as error:
        raise RecordError(f"{where}: not UTF-8 at byte {error.start}; the line was edited") from None
    except json.JSONDecodeError as error:
        raise RecordError(f"{where}: not JSON at column {error.colno}; the line was cut or edited") from None
    if not isinstance(value, dict):
        raise RecordError(f"{where}: not an object")
    return value


def _name(lane: tuple[Any, ...]) -> str:
    return " ".join(f"{name}={value}" for name, value in zip(LANE, lane, strict=True))
