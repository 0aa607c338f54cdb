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

from protocol.evidence.bytes import files
from protocol.evidence.lock import lock
from protocol.evidence.run import records
from protocol.evidence.run.ledger import Entry
from protocol.evidence.run.registration import SEAL, Registration
from protocol.running.executors import spool

__all__ = ["UnderWay", "holder", "under_way"]

LOCKS = Path("/proc/locks")
PHASES = {"probe": "probe", "attempt": "confirm"}  # by the event that begins an attempt


class UnderWay(NamedTuple):
    """An attempt that has not ended.

    started_at, last_record_at: seconds since 1970; last_record_at is None before the first record.
    recorded_before: records when it began; recorded: now; lanes: expected in total, None if unknown. pid: of
    the process that runs it; None if no process on this machine does. spool: status of its workers as last
    reported by their driver; empty without a spool.
    """

    phase: str
    began: float
    last: float | None
    found: int
    recorded: int
    lanes: int | None
    pid: int | None
    spool: str = ""

    @property
    def left(self) -> float | None:
        """Seconds until the last record, at the speed since the attempt began; None before that is known."""
        if self.pid is None or self.last is None or self.lanes is None or self.recorded <= self.found:
            return None
        each = (self.last - self.began) / (self.recorded - self.found)
        return max(0.0, each * (self.lanes - self.recorded) - (time.time() - self.last))


def under_way(study: Registration) -> UnderWay | None:
    """Return the status of the open attempt; None if nothing has begun or everything is sealed."""
    if study.has(SEAL) or (entry := _begun(study.entries)) is None:
        return None
    phase = PHASES[entry.event]
    shards = records.shards(study.place(phase))
    found, recorded = int(entry.body.get("records", 0)), sum(files.read(path).count(b"\n") for path in shards)
    last = max((path.stat().st_mtime for path in shards), default=None) if recorded > found else None
    began = datetime.fromisoformat(entry.time).timestamp()
    pid = holder(study.folder / lock.NAME)
    spooled = spool.told(study.folder, study.lock.digest, phase)
    return UnderWay(phase, began, last, found, recorded, _lanes(study, phase), pid, spooled)


def holder(path: Path) -> int | None:
    """Return the process that has `path` locked, as Linux lists it. None if it lists none, as for a process
    of another machine or container, and on other systems.
    """
    status = path.stat()
    own = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    with suppress(OSError):
        for fields in map(str.split, LOCKS.read_text().splitlines()):
            if "FLOCK" in fields and "->" not in fields and own in fields:  # an arrow: waits
                return int(fields[fields.index(own) - 1])
    return None


def _begun(entries: Sequence[Entry]) -> Entry | None:
    """Return the ledger entry that began an attempt that no later entry ended."""
    for entry in reversed(entries):
        if entry.event in PHASES:
            return entry
        if entry.event != "held-out":  # a held-out entry belongs to the attempt
            return None
    return None


def _lanes(study: Registration, phase: str) -> int | None:
    content = study.lock.content
    items, grid = content["items"], content["grid"]
    if phase == "confirm":
        return sum(len(items[task]["confirm"]) for _, task, *_ in grid)
    if study.swept:
        return None  # the cells of a sweep are not in the lock
    again = study.registered["decision"]["against"][0]  # the first comparator runs twice
    return sum(len(items[task]["dev"]) * (2 if arm == again else 1) for _, task, _, arm, _ in grid)
