"""The status of a running study: whether it runs, in which process, and how far it is.

It is read from the ledger, the records and the lock that the process has on lock.json. Reading it disturbs no
process and leaves no file.
"""

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from protocol.evidence.ledger import Entry
from protocol.evidence.registration import SEAL, Registration
from protocol.formats import shards
from protocol.lock import lock
from protocol.run.executors import spool

PROC_LOCKS = Path("/proc/locks")
PHASES = {"probe": "probe", "attempt": "confirm"}  # by the event that begins an attempt


class RunStatus(NamedTuple):
    """An attempt that has not ended.

    started_at, last_record_at: seconds since 1970; last_record_at is None before the first record.
    recorded_before: records when it began; recorded: now; lanes: expected in total, None if unknown. pid: of
    the process that runs it; None if no process on this machine does. spool: status of its workers as last
    reported by their driver; empty without a spool.
    """

    phase: str
    started_at: float
    last_record_at: float | None
    recorded_before: int
    recorded: int
    lanes: int | None
    pid: int | None
    spool: str = ""

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the last record, at the speed since the attempt began; None before that is known."""
        if (
            self.pid is None
            or self.last_record_at is None
            or self.lanes is None
            or self.recorded <= self.recorded_before
        ):
            return None
        seconds_per_lane = (self.last_record_at - self.started_at) / (self.recorded - self.recorded_before)
        return max(0.0, seconds_per_lane * (self.lanes - self.recorded) - (time.time() - self.last_record_at))


def read_run_status(study: Registration) -> RunStatus | None:
    """Return the status of the open attempt; None if nothing has begun or everything is sealed."""
    if study.has(SEAL) or (entry := _open_attempt(study.entries)) is None:
        return None
    phase = PHASES[entry.event]
    paths = shards.list_shards(study.phase_folder(phase))
    recorded_before, recorded = int(entry.body.get("records", 0)), sum(map(shards.count_lines, paths))
    last_record_at = max((path.stat().st_mtime for path in paths), default=None) if recorded > recorded_before else None
    started_at = datetime.fromisoformat(entry.time).timestamp()
    pid = find_lock_holder(study.folder / lock.NAME)
    spool_status = spool.describe_status(study.folder, study.lock.digest, phase)
    return RunStatus(
        phase, started_at, last_record_at, recorded_before, recorded, _expected_lanes(study, phase), pid, spool_status
    )


def find_lock_holder(path: Path) -> int | None:
    """Return the process that has `path` locked, as Linux lists it. None if it lists none, as for a process
    of another machine or container, and on other systems.
    """
    status = path.stat()
    file_id = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    with suppress(OSError):
        for fields in map(str.split, PROC_LOCKS.read_text().splitlines()):
            if "FLOCK" in fields and "->" not in fields and file_id in fields:  # an arrow: waits
                return int(fields[fields.index(file_id) - 1])
    return None


def _open_attempt(entries: Sequence[Entry]) -> Entry | None:
    """Return the ledger entry that began an attempt that no later entry ended."""
    for entry in reversed(entries):
        if entry.event in PHASES:
            return entry
        if entry.event not in ("held-out", "look"):  # these entries belong to the attempt
            return None
    return None


def _expected_lanes(study: Registration, phase: str) -> int | None:
    content = study.lock.content
    items, grid = content["items"], content["grid"]
    if phase == "confirm":
        return sum(len(study.due_items[task]["confirm"]) for _, task, *_ in grid)
    if study.has_sweep:
        return None  # the cells of a sweep are not in the lock
    repeated_arm = study.protocol["decision"]["against"][0]  # the first comparator runs twice
    return sum(len(items[task]["dev"]) * (2 if arm == repeated_arm else 1) for _, task, _, arm, _ in grid)
