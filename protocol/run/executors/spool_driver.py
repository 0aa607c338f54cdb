"""The driver of workers that share a spool: it queues jobs, and returns their results in order.

A worker that ends, or stops its heartbeat, is replaced and its job given to another, a bounded number of
times. A result is removed when the next one is requested, since then it has been recorded. A driver that
restarts after a kill uses the spooled results and does not queue those jobs again. Prompts and grades are of a keeper
(`answers`); of encrypted problems no prompt is written in plain text.
"""

from __future__ import annotations

import secrets
import shutil
import socket
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from os import getpid
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from protocol.formats import canonical, files
from protocol.formats.refusals import Refusal
from protocol.run.executors import Executor, Job, JobPrompts, JobResult, JobUpdate, PoolStatus, prompt_handover
from protocol.run.executors.settings import Settings
from protocol.run.executors.spool import (
    DamagedResult,
    Spool,
    delete_job,
    dump_prompts,
    keep_heartbeat,
    read_json,
    restore_refusal,
)
from protocol.workspace import locked_tree
from protocol.workspace.drift import ROOT
from protocol.workspace.study import Study

if TYPE_CHECKING:  # with torch
    from protocol.run.executors.answers import AnswerKeeper, RemoteKeeper

JOBS_AHEAD = 32  # jobs queued at once, or four a worker, so that no worker idles during a slow first job
POLL_SECONDS, CHECK_SECONDS = 0.1, 1.0  # seconds
SILENT_SECONDS = 120.0  # seconds without a heartbeat after which a worker counts as dead
UNHEARD_SECONDS = 600.0  # the same for all workers together, if their cluster does not answer either
MAX_LOSSES = 3  # times that a job may lose its worker, and that each worker may be replaced without a result
EXIT_SECONDS = 5.0  # seconds that workers get to exit by themselves


class WorkerExit(NamedTuple):
    """A worker that its launcher no longer sees. message: its last output; empty if there is none."""

    message: str


class Launcher(Protocol):
    """Starts workers. `states`: for each started slot whether it ended; None if that is unknown now.
    `status_command`: the command that shows pending workers to a person.
    """

    def start(self, commands: Mapping[int, Sequence[str]]) -> None: ...

    def states(self) -> Mapping[int, WorkerExit | None] | None: ...

    def status_command(self) -> str: ...

    def stop(self) -> None: ...


@contextmanager
def drive_workers(
    study: Study,
    settings: Settings,
    count: int,
    launcher: Launcher,
    phase: str,
    wait: float,
    keeper: AnswerKeeper | RemoteKeeper,
    encrypted_tasks: Collection[str],
    report: Callable[[JobUpdate], object],
) -> Iterator[Executor]:
    """Open an executor with `count` workers of `launcher`. The spool is removed once all requested results arrived."""
    shared = Spool.for_phase(study.folder, study.lock.digest, phase, settings.spool)
    shared.prepare()
    session = secrets.token_hex(8)
    commands = {slot: worker_command(study, shared, settings, session, slot) for slot in range(count)}
    driver = _Driver(shared, session, launcher, commands, wait, keeper, encrypted_tasks, report)
    driver_fields = {"session": session, "host": socket.gethostname(), "pid": getpid(), "executor": settings.kind}
    try:
        with keep_heartbeat(shared.driver, lambda: {**driver_fields, **driver.status}):
            launcher.start(commands)
            yield driver.execute
    finally:
        # Workers of this session exit; they may still spool the job that they have begun.
        try:
            with suppress(OSError):  # on a full disk workers miss the heartbeat instead
                if shared.driver.parent.exists():
                    files.replace(shared.driver, canonical.dumps({"session": "over", "beat": 0}))
            driver.wait_for_exit()
        finally:
            launcher.stop()
    if driver.is_complete:
        shared.remove()


def worker_command(study: Study, shared: Spool, settings: Settings, session: str, slot: int) -> list[str]:
    """Return the command that starts a worker on any machine that has this Python and these folders: from a
    copy of the locked sources, or from the working tree if this process runs from it.
    """
    root, in_place = ROOT, ["--here"]
    if locked_tree.is_unpacked():
        root, in_place = shared.folder / "tree", []
        if not root.exists():
            unfinished = shared.folder / f".tree.{secrets.token_hex(4)}"
            shutil.copytree(ROOT, unfinished, ignore=shutil.ignore_patterns(locked_tree.BYTECODE, "__pycache__"))
            unfinished.rename(root)
    spool_option = [] if settings.spool is None else ["--spool", str(settings.spool)]
    home = f"KV_PREREG_HOME={study.planned.home}"
    # The locked tree runs with few environment variables of the machine; see `tree.SETTINGS`.
    environment = ["env", f"PYTHONPATH={root}", "PYTHONDONTWRITEBYTECODE=1", home]
    python = [sys.executable, "-P", *(["-s"] if sys.flags.no_user_site else [])]
    options = ["--lock", shared.lock, "--phase", shared.phase, "--session", session, "--slot", str(slot)]
    folder = str(study.folder.resolve())
    module = "protocol.run.executors.worker"
    command = [*environment, *python, "-m", module, folder, *options]
    return [*command, "--executor", settings.kind, *spool_option, *in_place]


class _Heartbeat(NamedTuple):
    beat: int
    changed_at: float  # time of its last change, by this process's clock
    status: Mapping[str, Any]


class _QueuedJob(NamedTuple):
    number: int
    name: str
    job: Job
    prompts: JobPrompts


class _Driver:
    def __init__(
        self,
        shared: Spool,
        session: str,
        launcher: Launcher,
        commands: Mapping[int, Sequence[str]],
        wait: float,
        keeper: AnswerKeeper | RemoteKeeper,
        encrypted_tasks: Collection[str],
        report: Callable[[JobUpdate], object],
    ) -> None:
        self._shared, self._session, self._launcher, self._commands = shared, session, launcher, commands
        self._wait, self._keeper, self._encrypted_tasks, self._report = wait, keeper, encrypted_tasks, report
        self._window: deque[_QueuedJob] = deque()
        self._heartbeats: dict[str, _Heartbeat] = {}
        self._suspected: set[str] = set()
        self._missing: set[str] = set()  # jobs that no worker had at the last check
        self._refused: dict[int, Refusal] = {}
        self._losses: Counter[str] = Counter()
        self._replaced = 0  # workers replaced since the last result
        self._heard_at = self._checked_at = time.monotonic()
        self.status: Mapping[str, Any] = {"look": launcher.status_command(), "workers": len(commands)}

    def execute(self, jobs: Iterable[Job]) -> Iterator[JobResult]:
        remaining_jobs, number = iter(jobs), 0
        window_size = max(JOBS_AHEAD, 4 * len(self._commands))
        while True:
            ready = self._shared.result_names()
            while len(self._window) < window_size and (job := next(remaining_jobs, None)) is not None:
                prompts = self._keeper.render(job)
                self._window.append(_QueuedJob(number, self._shared.job_name(job, prompts), job, prompts))
                if self._window[-1].name not in ready:
                    self._enqueue(self._window[-1])
                number += 1
            if not self._window:
                return
            job_result = self._await_first()
            first = self._window.popleft()
            yield self._keeper.grade(first.job, job_result)
            self._shared.delete_result(first.name)

    @property
    def is_complete(self) -> bool:
        """Whether all requested results were returned; the file of the last result still exists."""
        return not self._window

    def _enqueue(self, queued: _QueuedJob) -> None:
        is_encrypted = queued.job.task in self._encrypted_tasks
        self._shared.enqueue(queued.number, queued.name, queued.job, None if is_encrypted else queued.prompts)

    def _hand_over(self) -> None:
        """Encrypt prompts of encrypted problems to each worker that has their job."""
        waiting = {queued.name: queued for queued in self._window if queued.job.task in self._encrypted_tasks}
        for job_path in self._shared.taken_jobs.glob("*/[0-9]*.json") if waiting else ():
            heartbeat = self._heartbeats.get(job_path.parent.name)
            queued = waiting.get(job_path.stem.partition("-")[2])
            if heartbeat is None or queued is None or "recipient" not in heartbeat.status:
                continue
            if not job_path.with_suffix(prompt_handover.SUFFIX).exists():
                prompts = canonical.dumps(dump_prompts(queued.prompts))
                prompt_handover.hand_over(job_path, prompts, heartbeat.status["recipient"])

    def _await_first(self) -> JobResult:
        """Wait for and return the result of the first job in the window. Raises its refusal."""
        first = self._window[0]
        name, job = first.name, first.job
        while True:
            if name in self._shared.result_names():
                try:
                    result = self._shared.read_result(name, job)
                except DamagedResult as damaged:
                    self._shared.delete_result(name)
                    self._requeue(first, str(damaged))
                    continue
                self._replaced = 0
                if isinstance(result, Refusal):
                    self._shared.delete_result(name)  # queued again when the command is run again
                    raise result
                return result
            if time.monotonic() - self._checked_at >= CHECK_SECONDS:
                self._check_workers()
            self._hand_over()
            time.sleep(POLL_SECONDS)

    def _requeue(self, queued: _QueuedJob, why: str) -> None:
        job = queued.job
        self._losses[queued.name] += 1
        if self._losses[queued.name] > MAX_LOSSES:
            raise Refusal(
                f"executor: a batch of {job.model} on {job.task} ({job.problems[0]}, ...) was given to "
                f"{MAX_LOSSES + 1} workers, and none returned its result: {why}; run the command again"
            )
        self._enqueue(queued)

    def _check_workers(self) -> None:
        """Check the workers: requeue lost jobs, replace ended workers, and refuse when no progress is possible."""
        now = self._checked_at = time.monotonic()
        states = self._launcher.states()
        present = self._read_workers(now)
        ended = {slot: state for slot, state in (states or {}).items() if state is not None}
        newest = {
            heartbeat.status["slot"]: worker for worker, heartbeat in sorted(self._heartbeats.items(), key=_start_order)
        }
        living = {
            worker: heartbeat.status
            for worker, heartbeat in self._heartbeats.items()
            if worker in present
            and (slot := heartbeat.status["slot"]) not in ended
            and newest[slot] == worker
            and now - heartbeat.changed_at <= SILENT_SECONDS
        }
        self._requeue_lost(living, ended)
        self._requeue_missing()
        statuses = list(living.values())
        if statuses:
            self._heard_at = now
        self._refuse_hopeless(now, states is None)
        self._replace_workers(ended)
        running = tuple(sorted(_worker_label(status) for status in statuses if status.get("state") == "running"))
        started_slots = {status["slot"] for status in statuses} | set(self._refused)
        pool_status = PoolStatus(
            running,
            len(self._commands) - len(started_slots),
            len(self._shared.waiting_files()),
            len({queued.name for queued in self._window} & self._shared.result_names()),
            str(next(iter(self._refused.values()), "")),
        )
        self.status = {"look": self._launcher.status_command(), "workers": len(self._commands), **pool_status._asdict()}
        self._report(pool_status)

    def _read_workers(self, now: float) -> set[str]:
        """Return the workers of this session that have a heartbeat file; a worker that exits removes its file."""
        present = set()
        for path in self._shared.workers.glob("[0-9]*"):
            status = read_json(path)
            if status is None or status.get("session") != self._session:
                continue
            if path.suffix == ".refused":
                message = f"worker on {status['host']}: {status['why']}"
                self._refused[status["slot"]] = restore_refusal(status["refused"], message)
            elif path.suffix == ".json":
                present.add(path.stem)
                if (previous := self._heartbeats.get(path.stem)) is None or previous.beat != status["beat"]:
                    self._heartbeats[path.stem] = _Heartbeat(status["beat"], now, status)
        return present

    def _requeue_lost(self, living: Mapping[str, Any], ended: Mapping[int, WorkerExit]) -> None:
        """Requeue the jobs of workers that are not alive, in this check and in the one before: a worker may
        take its first job before its first heartbeat is read.
        """
        holding = {path.name for path in self._shared.taken_jobs.iterdir() if any(path.iterdir())} - living.keys()
        lost_workers, self._suspected = holding & self._suspected, holding
        queued_by_name = {queued.name: queued for queued in self._window}
        for worker in lost_workers:
            slot = int(worker.partition("-")[0])
            why = ended[slot].message if slot in ended else f"{worker} is silent"
            for path in (self._shared.taken_jobs / worker).glob("[0-9]*.json"):
                name = path.stem.partition("-")[2]
                delete_job(path)
                if name in queued_by_name and not self._shared.has_result(name):
                    self._requeue(queued_by_name[name], why)

    def _requeue_missing(self) -> None:
        """Requeue jobs that are not waiting, taken or done in two successive checks: their file was
        truncated, edited or removed. The folders are listed in the order in which a job moves.
        """
        known_names = {file.removesuffix(".json").partition("-")[2] for file in self._shared.waiting_files()}
        known_names |= {path.stem.partition("-")[2] for path in self._shared.taken_jobs.glob("*/[0-9]*.json")}
        known_names |= self._shared.result_names()
        missing = [queued for queued in self._window if queued.name not in known_names]
        lost = [queued for queued in missing if queued.name in self._missing]
        self._missing = {queued.name for queued in missing}
        for queued in lost:
            self._requeue(queued, "its file was changed after it was written")

    def _refuse_hopeless(self, now: float, unknown: bool) -> None:
        if len(self._refused) == len(self._commands):
            raise next(iter(self._refused.values()))
        silent = now - self._heard_at
        if silent > self._wait or (unknown and self._heartbeats and silent > UNHEARD_SECONDS):
            raise Refusal(
                f"executor: none of {len(self._commands)} workers gave a sign of life for {silent / 60:.0f} "
                f"min, with {len(self._shared.waiting_files())} batches waiting; see: "
                f"{self._launcher.status_command()}; run the command again to continue"
            )

    def _replace_workers(self, ended: Mapping[int, WorkerExit]) -> None:
        lost_workers = {slot: state for slot, state in ended.items() if slot not in self._refused}
        if not lost_workers:
            return
        if self._replaced + len(lost_workers) > MAX_LOSSES * len(self._commands):
            message = next((state.message for state in lost_workers.values() if state.message), "it printed nothing")
            raise Refusal(
                f"executor: workers ended {self._replaced + len(lost_workers)} times without a result, the "
                f"last with: {message}; run the command again to continue"
            )
        self._replaced += len(lost_workers)
        self._launcher.start({slot: self._commands[slot] for slot in lost_workers})

    def wait_for_exit(self) -> None:
        """Wait a moment for workers to exit by themselves."""
        deadline = time.monotonic() + EXIT_SECONDS
        while time.monotonic() < deadline and self._heartbeats:
            if not any(self._shared.workers.glob("[0-9]*.json")):
                return
            time.sleep(POLL_SECONDS)


def _start_order(item: tuple[str, _Heartbeat]) -> tuple[float, int]:
    """Sort key: a worker that started later has a later heartbeat and fewer of them."""
    return item[1].changed_at, -item[1].beat


def _worker_label(status: Mapping[str, Any]) -> str:
    device = status.get("device") or ""
    return f"{status['host']} {device}".strip()
