"""A folder that the driver of a run and its workers share: jobs go in, results come out.

    driver.json            the driver; rewritten while it lives (always inside the study)
    workers/<id>.json      a worker, its machine and its state; rewritten while it lives
    jobs/<n>-<name>.json   jobs to take
    taken/<id>/<n>-...     jobs taken, by a rename, so by one worker alone; next to prompts handed to it
    done/<name>.json       a result: a temporary name, fsync, os.replace

A job has the prompts of its problems, and no answer: the driver grades the texts. `name` is the SHA-256 of the lock,
the phase, the job and its prompts, so that a result is found by its content, whichever attempt requested it. Nothing
here is evidence: a result is checked against its digest and its job, graded and recorded by the driver, and removed.
Clocks of two machines are not compared: a heartbeat is a number that changes.
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

from protocol.formats import canonical, files, record_fields
from protocol.formats.refusals import AlreadyClaimed, BadInput, Drifted, Refusal, Tampered
from protocol.plan.grid import Cell
from protocol.run.executors import Job, JobPrompts, JobResult, RenderedPrompt, prompt_handover

FOLDER = "spool"  # below a registration
HEARTBEAT_SECONDS = 1.0  # seconds between two heartbeats
UNGRADED = {"answer": None, "grade": "wrong", "grade_reason": ""}  # fields of which a worker's texts have none
_REFUSALS = {kind.__name__: kind for kind in (Refusal, BadInput, Drifted, Tampered, AlreadyClaimed)}


class DamagedResult(Exception):
    """A result whose digest does not match, or that belongs to another job."""


class TakenJob(NamedTuple):
    """A job as a worker takes it. prompts: None if they are handed over, since only the driver can decrypt them."""

    path: Path  # of the job file while the worker has it
    name: str
    job: Job
    prompts: JobPrompts | None


class Spool(NamedTuple):
    """The spool of one phase. lock: its digest. study_spools: the folder of spools, where the driver is announced."""

    folder: Path
    study_spools: Path
    lock: str
    phase: str

    @classmethod
    def for_phase(cls, study: Path, lock: str, phase: str, shared_folder: Path | None = None) -> "Spool":
        """shared_folder: the folder that all machines share, if it is outside the study. A copy of the study
        has the same lock and may use the same shared folder, so the name includes the study's path.
        """
        study_spools, name = study.resolve() / FOLDER, f"{phase}-{lock[:16]}"
        if shared_folder is not None:
            return cls(
                shared_folder / f"{name}-{canonical.digest(str(study.resolve()))[:16]}", study_spools, lock, phase
            )
        return cls(study_spools / name, study_spools, lock, phase)

    @property
    def driver(self) -> Path:
        """The path of the driver's file, in the study's own folder, where readers of the study find it."""
        return self.study_spools / f"{self.phase}-{self.lock[:16]}" / "driver.json"

    @property
    def jobs(self) -> Path:
        return self.folder / "jobs"

    @property
    def taken_jobs(self) -> Path:
        return self.folder / "taken"

    @property
    def results(self) -> Path:
        return self.folder / "done"

    @property
    def workers(self) -> Path:
        return self.folder / "workers"

    def prepare(self) -> int:
        """Remove jobs of an earlier driver and keep its results; return the number of results."""
        for folder in (self.folder, self.driver.parent):
            folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)  # prompts of held-out problems are readable by this user alone
        for folder in (self.jobs, self.taken_jobs, self.workers):
            shutil.rmtree(folder, ignore_errors=True)
        for folder in (self.jobs, self.taken_jobs, self.workers, self.results):
            folder.mkdir(exist_ok=True)
        return sum(path.suffix == ".json" and path.name[0] != "." for path in self.results.iterdir())

    def remove(self) -> None:
        """Remove the spool after everything is recorded."""
        for folder in (self.folder, self.driver.parent):
            shutil.rmtree(folder, ignore_errors=True)
        for folder in {self.study_spools, self.folder.parent}:
            with suppress(OSError):  # another phase or study has its spool there
                folder.rmdir()

    def job_name(self, job: Job, prompts: JobPrompts) -> str:
        content = {"lock": self.lock, "phase": self.phase, "job": _job_content(job), "prompts": dump_prompts(prompts)}
        return canonical.digest(content)

    def enqueue(self, number: int, name: str, job: Job, prompts: JobPrompts | None) -> None:
        """Add a job for some worker to take. number: workers take the lowest first. prompts: as in TakenJob."""
        content = {"job": _job_content(job), "prompts": None if prompts is None else dump_prompts(prompts)}
        files.replace(self.jobs / f"{number:08d}-{name}.json", canonical.dumps(content))

    def waiting_files(self) -> list[str]:
        """Return the file names of jobs that no worker has taken, in order."""
        return sorted(name for name in _list_folder(self.jobs) if name.endswith(".json") and name[0] != ".")

    def take(self, worker: str) -> TakenJob | None:
        """Return the first job that no other worker has; None if there is none."""
        worker_folder = self.taken_jobs / worker
        worker_folder.mkdir(exist_ok=True)
        for file in self.waiting_files():
            path = worker_folder / file
            try:
                os.rename(self.jobs / file, path)
            except FileNotFoundError:
                if not path.exists():  # a network file system may deny a rename that it made
                    continue
            name = file.removesuffix(".json").partition("-")[2]
            try:
                content = canonical.loads(path.read_bytes(), file)
                model, task, problems, cells = content["job"]
                job = Job(model, task, tuple(problems), tuple(Cell(*cell) for cell in cells))
                if content["prompts"] is None:
                    return TakenJob(path, name, job, None)
                prompts = restore_prompts(content["prompts"])
                if self.job_name(job, prompts) == name:
                    return TakenJob(path, name, job, prompts)
            except (Tampered, FileNotFoundError, KeyError, TypeError, ValueError):
                pass
            path.unlink(missing_ok=True)  # truncated or edited: the driver adds it again
        return None

    def has_result(self, name: str) -> bool:
        return (self.results / f"{name}.json").exists()

    def result_names(self) -> set[str]:
        """Return the names of the results, listed anew, since network file systems cache that a file does not exist."""
        return {file.removesuffix(".json") for file in _list_folder(self.results) if file[0] != "."}

    def write_result(self, taken_job: TakenJob, job_result: JobResult) -> None:
        """Write the result to disk and release the job."""
        self._write(
            taken_job,
            {
                "records": [[*key, *value] for key, value in job_result.records.items()],
                "trajectories": job_result.trajectories,
                "seconds": f"{job_result.seconds:.6f}",
                "where": job_result.where,
            },
        )

    def write_refusal(self, taken_job: TakenJob, refusal: Refusal) -> None:
        """Write that the job cannot be run, here or anywhere."""
        self._write(taken_job, {"refused": type(refusal).__name__, "why": str(refusal)})

    def _write(self, taken_job: TakenJob, fields: Mapping[str, Any]) -> None:
        content = {"lock": self.lock, "phase": self.phase, "job": taken_job.name, **fields}
        document = {"content": content, "sha256": canonical.digest(content)}
        files.replace(self.results / f"{taken_job.name}.json", canonical.dumps(document))
        delete_job(taken_job.path)

    def read_result(self, name: str, job: Job) -> JobResult | Refusal:
        """Return the result of this job. Raises DamagedResult for a file that does not match it in every field."""
        path = self.results / f"{name}.json"
        try:
            document = canonical.loads(files.read(path), path.name)
            content, digest = document["content"], document["sha256"]
            if canonical.digest(content) != digest:
                raise DamagedResult(f"{path}: does not match its digest")
            if (content["lock"], content["phase"], content["job"]) != (self.lock, self.phase, name):
                raise DamagedResult(f"{path}: belongs to another job")
            if "refused" in content:
                return restore_refusal(content["refused"], content["why"])
            return self._restore_result(content, job, path)
        except (Tampered, KeyError, TypeError, ValueError, AttributeError) as error:
            raise DamagedResult(f"{path}: is not a complete result: {error}") from None

    def _restore_result(self, content: Mapping[str, Any], job: Job, path: Path) -> JobResult:
        lane_records = {(Cell(*cell), problem): (body, costs) for cell, problem, body, costs in content["records"]}
        if len(lane_records) != len(content["records"]) or lane_records.keys() != {
            (cell, problem) for cell in job.cells for problem in job.problems
        }:
            raise DamagedResult(f"{path}: has lanes other than those of its job")
        side_file = canonical.digest(content["trajectories"])
        for (cell, problem), (body, costs) in lane_records.items():
            if body["state"] == "ok" and body.keys() & UNGRADED.keys():
                raise DamagedResult(f"{path}: has grades, which only the driver may give")
            fields = UNGRADED | {"registration": self.lock, "phase": self.phase} | body
            fault = record_fields.find_fault(fields, {"attempt": 1, **costs})
            cited = (body.get("trajectory") or side_file).partition("#")[0]
            if fault or body["cell"] != cell._asdict() or body["problem"] != problem or cited != side_file:
                raise DamagedResult(f"{path}: {fault or 'has a record of another lane, or cites a different file'}")
        return JobResult(lane_records, tuple(content["trajectories"]), float(content["seconds"]), content["where"])

    def delete_result(self, name: str) -> None:
        (self.results / f"{name}.json").unlink(missing_ok=True)


def describe_status(study: Path, lock: str, phase: str) -> str:
    """Return what the driver last reported of a phase's jobs; empty without a spool. study: its folder."""
    status = read_json(Spool.for_phase(study, lock, phase).driver)
    if status is None or "waiting" not in status:
        return ""
    running = f"{len(status['running'])} of {status['workers']} workers are running a batch"
    pending = f", {status['pending']} have not started ({status['look']})" if status["pending"] else ""
    counts = f"{status['waiting']} batches are waiting, {status['ready']} results are spooled"
    return f"{status['executor']}, from {status['host']}: {running}{pending}; {counts}"


def delete_job(job_path: Path) -> None:
    """Remove a job and the prompts handed over with it."""
    for path in (job_path, job_path.with_suffix(prompt_handover.SUFFIX)):
        path.unlink(missing_ok=True)


def restore_refusal(kind: str, why: str) -> Refusal:
    return _REFUSALS.get(kind, Refusal)(why)


def read_json(path: Path) -> dict[str, Any] | None:
    """Read a heartbeat file; None if it is missing or incomplete."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


@contextmanager
def keep_heartbeat(path: Path, get_status: Callable[[], Mapping[str, Any]]) -> Iterator[None]:
    """Inside the context, rewrite `path` with the status and a number that changes. A failed write is
    skipped: a worker without heartbeat is taken for dead, which costs time and nothing else.
    """
    stopped = threading.Event()

    def write_heartbeats() -> None:
        for number in count():
            unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
            try:
                unfinished.write_text(json.dumps({**get_status(), "beat": number}, sort_keys=True))
                os.replace(unfinished, path)
            except OSError:
                with suppress(OSError):
                    unfinished.unlink(missing_ok=True)
            if stopped.wait(HEARTBEAT_SECONDS):
                return

    thread = threading.Thread(target=write_heartbeats, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join(timeout=5)
        path.unlink(missing_ok=True)


def dump_prompts(prompts: JobPrompts) -> list[Any]:
    """Return prompts as JSON has them; seeds are texts, since they may be above 2**53."""
    return [list(map(list, prompts.prompts)), [[label, str(seed)] for label, seed in prompts.seeds.items()]]


def restore_prompts(content: Any) -> JobPrompts:
    rendered, seeds = content
    prompts = (
        RenderedPrompt(problem, extra_prompt, tuple(context), tuple(query), digest)
        for problem, extra_prompt, context, query, digest in rendered
    )
    return JobPrompts(tuple(prompts), {label: int(seed) for label, seed in seeds})


def _job_content(job: Job) -> list[Any]:
    return [job.model, job.task, list(job.problems), [list(cell) for cell in job.cells]]


def _list_folder(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []
