"""A folder that the driver of a run and its workers share: jobs go in, results come out.

    driver.json            the driver; rewritten while it lives (always inside the study)
    workers/<id>.json      a worker, its machine and its state; rewritten while it lives
    jobs/<n>-<name>.json   jobs to take
    taken/<id>/<n>-...     jobs taken, by a rename, so by one worker alone; next to problems handed to it
    done/<name>.json       a result: a temporary name, fsync, os.replace

`name` is the SHA-256 of the lock, the phase and the job, so that a result is found by its content, whichever
attempt requested it. Nothing here is evidence: a result is checked against its digest and its job, recorded
by the driver, and removed. Clocks of two machines are not compared: a heartbeat is a number that changes.
"""

import json
import os
import secrets
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from protocol.evidence.bytes import canonical, files
from protocol.evidence.refusals import AlreadyClaimed, BadInput, Drifted, Refusal, Tampered
from protocol.evidence.run import record_fields
from protocol.plan.grid import Cell
from protocol.running.executors import Job, Produced, handing

__all__ = [
    "BEAT",
    "FOLDER",
    "Asked",
    "Damaged",
    "Spool",
    "beating",
    "drop",
    "read_json",
    "refusal_of",
    "told",
]

FOLDER = "spool"  # below a registration
BEAT = 1.0  # seconds between two heartbeats
_REFUSALS = {kind.__name__: kind for kind in (Refusal, BadInput, Drifted, Tampered, AlreadyClaimed)}


class Damaged(Exception):
    """A result whose digest does not match, or that belongs to another job."""


class Asked(NamedTuple):
    """A job as a worker takes it. needs_problems: whether its problems are handed over, since only the driver
    can decrypt them.
    """

    place: Path  # of the job file while the worker has it
    name: str
    job: Job
    handed: bool = False


class Spool(NamedTuple):
    """The spool of one phase of a study. lock: its digest. study_spools: the study's folder of spools, where
    the driver is announced.
    """

    place: Path
    own: Path
    lock: str
    phase: str

    @classmethod
    def of(cls, study: Path, lock: str, phase: str, given: Path | None = None) -> "Spool":
        """shared_folder: the folder that all machines share, if it is outside the study. A copy of the study
        has the same lock and may use the same shared folder, so the name includes the study's path.
        """
        own, name = study.resolve() / FOLDER, f"{phase}-{lock[:16]}"
        if given is not None:
            return cls(given / f"{name}-{canonical.digest(str(study.resolve()))[:16]}", own, lock, phase)
        return cls(own / name, own, lock, phase)

    @property
    def driver(self) -> Path:
        """The path of the driver's file, in the study's own folder, where readers of the study find it."""
        return self.own / f"{self.phase}-{self.lock[:16]}" / "driver.json"

    @property
    def jobs(self) -> Path:
        return self.place / "jobs"

    @property
    def taken(self) -> Path:
        return self.place / "taken"

    @property
    def done(self) -> Path:
        return self.place / "done"

    @property
    def workers(self) -> Path:
        return self.place / "workers"

    def begin(self) -> int:
        """Remove jobs of an earlier driver and keep its results; return the number of results."""
        for folder in (self.place, self.driver.parent):
            folder.mkdir(parents=True, exist_ok=True)
        self.place.chmod(0o700)  # held-out problems are readable by this user alone
        for folder in (self.jobs, self.taken, self.workers):
            shutil.rmtree(folder, ignore_errors=True)
        for folder in (self.jobs, self.taken, self.workers, self.done):
            folder.mkdir(exist_ok=True)
        return sum(path.suffix == ".json" and path.name[0] != "." for path in self.done.iterdir())

    def end(self) -> None:
        """Remove the spool after everything is recorded."""
        for folder in (self.place, self.driver.parent):
            shutil.rmtree(folder, ignore_errors=True)
        for folder in {self.own, self.place.parent}:
            with suppress(OSError):  # another phase or study has its spool there
                folder.rmdir()

    def name(self, job: Job) -> str:
        asked = {"lock": self.lock, "phase": self.phase, "job": _content(job)}
        return canonical.digest(asked)

    def ask(self, number: int, name: str, job: Job, handed: bool = False) -> None:
        """Add a job for some worker to take. number: workers take the lowest first. needs_problems: as in
        TakenJob.
        """
        asked = {"job": _content(job), "handed": handed}
        files.replace(self.jobs / f"{number:08d}-{name}.json", canonical.dumps(asked))

    def waiting(self) -> list[str]:
        """Return the file names of jobs that no worker has taken, in order."""
        return sorted(name for name in _names(self.jobs) if name.endswith(".json") and name[0] != ".")

    def take(self, worker: str) -> Asked | None:
        """Return the first job that no other worker has; None if there is none."""
        mine = self.taken / worker
        mine.mkdir(exist_ok=True)
        for file in self.waiting():
            place = mine / file
            try:
                os.rename(self.jobs / file, place)
            except FileNotFoundError:
                if not place.exists():  # a network file system may deny a rename that it made
                    continue
            name = file.removesuffix(".json").partition("-")[2]
            try:
                asked = canonical.loads(place.read_bytes(), file)
                model, task, problems, cells = asked["job"]
                job = Job(model, task, tuple(problems), tuple(Cell(*cell) for cell in cells))
                if self.name(job) == name:
                    return Asked(place, name, job, asked["handed"])
            except (Tampered, FileNotFoundError, KeyError, TypeError, ValueError):
                pass
            place.unlink(missing_ok=True)  # truncated or edited: the driver adds it again
        return None

    def has(self, name: str) -> bool:
        return (self.done / f"{name}.json").exists()

    def ready(self) -> set[str]:
        """Return the names of the results. The folder is listed each time, since network file systems cache
        that a file does not exist.
        """
        return {file.removesuffix(".json") for file in _names(self.done) if file[0] != "."}

    def finish(self, asked: Asked, produced: Produced) -> None:
        """Write the result to disk and release the job."""
        self._write(
            asked,
            {
                "records": [[*key, *value] for key, value in produced.records.items()],
                "trajectories": produced.trajectories,
                "seconds": f"{produced.seconds:.6f}",
                "where": produced.where,
            },
        )

    def refuse(self, asked: Asked, refused: Refusal) -> None:
        """Write that the job cannot be run, here or anywhere."""
        self._write(asked, {"refused": type(refused).__name__, "why": str(refused)})

    def _write(self, asked: Asked, said: Mapping[str, Any]) -> None:
        content = {"lock": self.lock, "phase": self.phase, "job": asked.name, **said}
        whole = {"content": content, "sha256": canonical.digest(content)}
        files.replace(self.done / f"{asked.name}.json", canonical.dumps(whole))
        drop(asked.place)

    def result(self, name: str, job: Job) -> Produced | Refusal:
        """Return the result of this job. Raises DamagedResult for a file that does not match it in every
        field.
        """
        path = self.done / f"{name}.json"
        try:
            whole = canonical.loads(files.read(path), path.name)
            content, digest = whole["content"], whole["sha256"]
            if canonical.digest(content) != digest:
                raise Damaged(f"{path}: is not what its digest says")
            if (content["lock"], content["phase"], content["job"]) != (self.lock, self.phase, name):
                raise Damaged(f"{path}: is of another job")
            if "refused" in content:
                return refusal_of(content["refused"], content["why"])
            return self._produced(content, job, path)
        except (Tampered, KeyError, TypeError, ValueError, AttributeError) as wrong:
            raise Damaged(f"{path}: is no whole result: {wrong}") from None

    def _produced(self, content: Mapping[str, Any], job: Job, path: Path) -> Produced:
        found = {(Cell(*cell), problem): (body, costs) for cell, problem, body, costs in content["records"]}
        if len(found) != len(content["records"]) or found.keys() != {
            (cell, problem) for cell in job.cells for problem in job.problems
        }:
            raise Damaged(f"{path}: has other lanes than its job")
        sides = canonical.digest(content["trajectories"])
        for (cell, problem), (body, costs) in found.items():
            wrong = record_fields.fault(
                {"registration": self.lock, "phase": self.phase, **body}, {"attempt": 1, **costs}
            )
            cited = (body.get("trajectory") or sides).partition("#")[0]
            if wrong or body["cell"] != cell._asdict() or body["problem"] != problem or cited != sides:
                raise Damaged(f"{path}: {wrong or 'has a record of another lane, or cites another file'}")
        return Produced(found, tuple(content["trajectories"]), float(content["seconds"]), content["where"])

    def forget(self, name: str) -> None:
        (self.done / f"{name}.json").unlink(missing_ok=True)


def told(study: Path, lock: str, phase: str) -> str:
    """Return the status of a phase's jobs as last reported by the driver; empty without a spool. study: the
    registration's folder.
    """
    said = read_json(Spool.of(study, lock, phase).driver)
    if said is None or "waiting" not in said:
        return ""
    run = f"{len(said['running'])} of {said['workers']} workers run a batch"
    pending = f", {said['pending']} have not begun ({said['look']})" if said["pending"] else ""
    counts = f"{said['waiting']} batches wait, {said['ready']} results are spooled"
    return f"{said['executor']}, from {said['host']}: {run}{pending}; {counts}"


def drop(place: Path) -> None:
    """Remove a job and the problems handed over with it."""
    for path in (place, place.with_suffix(handing.SUFFIX)):
        path.unlink(missing_ok=True)


def refusal_of(kind: str, why: str) -> Refusal:
    return _REFUSALS.get(kind, Refusal)(why)


def read_json(path: Path) -> dict[str, Any] | None:
    """Read a heartbeat file; None if it is missing or incomplete."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


@contextmanager
def beating(path: Path, say: Callable[[], Mapping[str, Any]]) -> Iterator[None]:
    """Inside the context, rewrite `path` with the status and a number that changes. A failed write is
    skipped: a worker without heartbeat is taken for dead, which costs time and nothing else.
    """
    over = threading.Event()

    def beat() -> None:
        for number in count():
            unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
            try:
                unfinished.write_text(json.dumps({**say(), "beat": number}, sort_keys=True))
                os.replace(unfinished, path)
            except OSError:
                with suppress(OSError):
                    unfinished.unlink(missing_ok=True)
            if over.wait(BEAT):
                return

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(timeout=5)
        path.unlink(missing_ok=True)


def _content(job: Job) -> list[Any]:
    return [job.model, job.task, list(job.problems), [list(cell) for cell in job.cells]]


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []
