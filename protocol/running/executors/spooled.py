"""The driver of workers that share a spool: it queues jobs, and returns their results in order.

A worker that ends, or stops its heartbeat, is replaced and its job given to another, a bounded number of
times. A result is removed when the next one is requested, since then it has been recorded. A driver that
restarts after a kill uses the spooled results and does not queue those jobs again.
"""

import secrets
import shutil
import socket
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from os import getpid
from typing import Any, NamedTuple, Protocol

from protocol.evidence.bytes import canonical, files
from protocol.evidence.refusals import Refusal
from protocol.locked import tree
from protocol.locked.drift import ROOT
from protocol.locked.study import Study
from protocol.running.executors import Executor, Job, Produced, Spread, Told, handing
from protocol.running.executors.settings import Settings
from protocol.running.executors.spool import Damaged, Spool, beating, drop, read_json, refusal_of

__all__ = ["AHEAD", "LOST", "Ended", "Launcher", "driven", "worker_command"]

AHEAD = 32  # jobs queued at once, or four a worker, so that no worker idles during a slow first job
POLL, LOOK = 0.1, 1.0  # seconds
SILENT = 120.0  # seconds without a heartbeat after which a worker counts as dead
UNHEARD = 600.0  # the same for all workers together, if their cluster does not answer either
LOST = 3  # times that a job may lose its worker, and that each worker may be replaced without a result
GRACE = 5.0  # seconds that workers get to exit by themselves


class Ended(NamedTuple):
    """A worker that its launcher no longer sees. message: its last output; empty if there is none."""

    why: str


class Launcher(Protocol):
    """Starts workers. `states`: for each started slot whether it ended; None if that is unknown now.
    `status_command`: the command that shows pending workers to a person.
    """

    def start(self, commands: Mapping[int, Sequence[str]]) -> None: ...

    def states(self) -> Mapping[int, Ended | None] | None: ...

    def look(self) -> str: ...

    def stop(self) -> None: ...


@contextmanager
def driven(
    study: Study,
    settings: Settings,
    count: int,
    launcher: Launcher,
    phase: str,
    wait: float,
    given: Callable[[Job], Mapping[str, Any]],
    report: Callable[[Told], object],
) -> Iterator[Executor]:
    """Open an executor with `count` workers that `launcher` starts. get_problems: returns problems that only
    this process can decrypt. The spool is removed after all requested results arrived, and kept otherwise.
    """
    shared = Spool.of(study.folder, study.lock.digest, phase, settings.spool)
    shared.begin()
    session = secrets.token_hex(8)
    commands = {slot: worker_command(study, shared, settings, session, slot) for slot in range(count)}
    driver = _Driver(shared, session, launcher, commands, wait, given, report)
    about = {"session": session, "host": socket.gethostname(), "pid": getpid(), "executor": settings.kind}
    try:
        with beating(shared.driver, lambda: {**about, **driver.says}):
            launcher.start(commands)
            yield driver.execute
    finally:
        # Workers of this session exit; they may still spool the job that they have begun.
        try:
            with suppress(OSError):  # on a full disk workers miss the heartbeat instead
                if shared.driver.parent.exists():
                    files.replace(shared.driver, canonical.dumps({"session": "over", "beat": 0}))
            driver.left()
        finally:
            launcher.stop()
    if driver.whole:
        shared.end()


def worker_command(study: Study, shared: Spool, settings: Settings, session: str, slot: int) -> list[str]:
    """Return the command that starts a worker on any machine that has this Python and these folders: from a
    copy of the locked sources, or from the working tree if this process runs from it.
    """
    root, here = ROOT, ["--here"]
    if tree.unpacked():
        root, here = shared.place / "tree", []
        if not root.exists():
            unfinished = shared.place / f".tree.{secrets.token_hex(4)}"
            shutil.copytree(ROOT, unfinished, ignore=shutil.ignore_patterns(tree.BYTECODE, "__pycache__"))
            unfinished.rename(root)
    given = [] if settings.spool is None else ["--spool", str(settings.spool)]
    home = f"KV_PREREG_HOME={study.planned.home}"
    # The locked tree runs with few environment variables of the machine; see `tree.SETTINGS`.
    environment = ["env", f"PYTHONPATH={root}", "PYTHONDONTWRITEBYTECODE=1", home]
    python = [sys.executable, "-P", *(["-s"] if sys.flags.no_user_site else [])]
    words = ["--lock", shared.lock, "--phase", shared.phase, "--session", session, "--slot", str(slot)]
    folder = str(study.folder.resolve())
    module = "protocol.running.executors.worker"
    started = [*environment, *python, "-m", module, folder, *words]
    return [*started, "--executor", settings.kind, *given, *here]


class _Seen(NamedTuple):
    beat: int
    at: float  # time of its last change, by this process's clock
    said: Mapping[str, Any]


class _Driver:
    def __init__(
        self,
        shared: Spool,
        session: str,
        launcher: Launcher,
        commands: Mapping[int, Sequence[str]],
        wait: float,
        given: Callable[[Job], Mapping[str, Any]],
        report: Callable[[Told], object],
    ) -> None:
        self._shared, self._session, self._launcher, self._commands = shared, session, launcher, commands
        self._wait, self._given, self._report = wait, given, report
        self._window: deque[tuple[int, str, Job]] = deque()
        self._seen: dict[str, _Seen] = {}
        self._handed: dict[str, Mapping[str, Any]] = {}  # by job
        self._suspected: set[str] = set()
        self._missed: set[str] = set()  # jobs that no worker had at the last check
        self._refused: dict[int, Refusal] = {}
        self._lost: Counter[str] = Counter()
        self._replaced = 0  # workers replaced since the last result
        self._heard = self._looked = time.monotonic()
        self.says: Mapping[str, Any] = {"look": launcher.look(), "workers": len(commands)}

    def execute(self, jobs: Iterable[Job]) -> Iterator[Produced]:
        coming, number = iter(jobs), 0
        ahead = max(AHEAD, 4 * len(self._commands))
        while True:
            ready = self._shared.ready()
            while len(self._window) < ahead and (job := next(coming, None)) is not None:
                name = self._shared.name(job)
                self._window.append((number, name, job))
                if name not in ready:
                    self._ask(number, name, job)
                number += 1
            if not self._window:
                return
            produced = self._first()
            name = self._window.popleft()[1]
            yield produced
            self._shared.forget(name)

    @property
    def whole(self) -> bool:
        """Whether all requested results were returned; the file of the last result still exists."""
        return not self._window

    def _ask(self, number: int, name: str, job: Job) -> None:
        given = self._given(job)
        if given:
            self._handed[name] = given
        self._shared.ask(number, name, job, bool(given))

    def _hand_over(self) -> None:
        """Encrypt problems that only this process can open to each worker that has their job."""
        for name in self._handed.keys() - {name for _, name, _ in self._window}:
            del self._handed[name]
        for place in self._shared.taken.glob("*/[0-9]*.json") if self._handed else ():
            seen, given = self._seen.get(place.parent.name), self._handed.get(place.stem.partition("-")[2])
            if seen is None or given is None or "recipient" not in seen.said:
                continue
            if not place.with_suffix(handing.SUFFIX).exists():
                handing.hand(place, given, seen.said["recipient"])

    def _first(self) -> Produced:
        """Wait for and return the result of the first job in the window. Raises its refusal."""
        number, name, job = self._window[0]
        while True:
            if name in self._shared.ready():
                try:
                    result = self._shared.result(name, job)
                except Damaged as damaged:
                    self._shared.forget(name)
                    self._again(number, name, job, str(damaged))
                    continue
                self._replaced = 0
                if isinstance(result, Refusal):
                    self._shared.forget(name)  # queued again when the command is run again
                    raise result
                return result
            if time.monotonic() - self._looked >= LOOK:
                self._look()
            self._hand_over()
            time.sleep(POLL)

    def _again(self, number: int, name: str, job: Job, why: str) -> None:
        self._lost[name] += 1
        if self._lost[name] > LOST:
            raise Refusal(
                f"executor: a batch of {job.model} on {job.task} ({job.problems[0]}, ...) was given to "
                f"{LOST + 1} workers, and none brought its result: {why}; run the command again"
            )
        self._ask(number, name, job)

    def _look(self) -> None:
        """Check the workers: requeue lost jobs, replace ended workers, and refuse when no progress is
        possible.
        """
        now = self._looked = time.monotonic()
        states = self._launcher.states()
        there = self._read_workers(now)
        ended = {slot: state for slot, state in (states or {}).items() if state is not None}
        newest = {seen.said["slot"]: worker for worker, seen in sorted(self._seen.items(), key=_appeared)}
        living = {
            worker: seen.said
            for worker, seen in self._seen.items()
            if worker in there
            and (slot := seen.said["slot"]) not in ended
            and newest[slot] == worker
            and now - seen.at <= SILENT
        }
        self._give_again(living, ended)
        self._find_again()
        alive = list(living.values())
        if alive:
            self._heard = now
        self._refuse_hopeless(now, states is None)
        self._replace(ended)
        running = tuple(sorted(_place(said) for said in alive if said.get("state") == "running"))
        begun = {said["slot"] for said in alive} | set(self._refused)
        spread = Spread(
            running,
            len(self._commands) - len(begun),
            len(self._shared.waiting()),
            len({name for _, name, _ in self._window} & self._shared.ready()),
            str(next(iter(self._refused.values()), "")),
        )
        self.says = {"look": self._launcher.look(), "workers": len(self._commands), **spread._asdict()}
        self._report(spread)

    def _read_workers(self, now: float) -> set[str]:
        """Return the workers of this session that have a heartbeat file; a worker that exits removes its
        file.
        """
        there = set()
        for path in self._shared.workers.glob("[0-9]*"):
            said = read_json(path)
            if said is None or said.get("session") != self._session:
                continue
            if path.suffix == ".refused":
                why = f"worker on {said['host']}: {said['why']}"
                self._refused[said["slot"]] = refusal_of(said["refused"], why)
            elif path.suffix == ".json":
                there.add(path.stem)
                if (old := self._seen.get(path.stem)) is None or old.beat != said["beat"]:
                    self._seen[path.stem] = _Seen(said["beat"], now, said)
        return there

    def _give_again(self, living: Mapping[str, Any], ended: Mapping[int, Ended]) -> None:
        """Requeue the jobs of workers that are not alive, in this check and in the one before: a worker may
        take its first job before its first heartbeat is read.
        """
        holding = {path.name for path in self._shared.taken.iterdir() if any(path.iterdir())} - living.keys()
        again, self._suspected = holding & self._suspected, holding
        names = {name: (number, job) for number, name, job in self._window}
        for worker in again:
            slot = int(worker.partition("-")[0])
            why = ended[slot].why if slot in ended else f"{worker} is silent"
            for path in (self._shared.taken / worker).glob("[0-9]*.json"):
                name = path.stem.partition("-")[2]
                drop(path)
                if name in names and not self._shared.has(name):
                    self._again(names[name][0], name, names[name][1], why)

    def _find_again(self) -> None:
        """Requeue jobs that are not waiting, taken or done in two successive checks: their file was
        truncated, edited or removed. The folders are listed in the order in which a job moves.
        """
        found = {file.removesuffix(".json").partition("-")[2] for file in self._shared.waiting()}
        found |= {path.stem.partition("-")[2] for path in self._shared.taken.glob("*/[0-9]*.json")}
        found |= self._shared.ready()
        missed = [each for each in self._window if each[1] not in found]
        again, self._missed = (
            [each for each in missed if each[1] in self._missed],
            {each[1] for each in missed},
        )
        for number, name, job in again:
            self._again(number, name, job, "its file was not as it was written")

    def _refuse_hopeless(self, now: float, unknown: bool) -> None:
        if len(self._refused) == len(self._commands):
            raise next(iter(self._refused.values()))
        silent = now - self._heard
        if silent > self._wait or (unknown and self._seen and silent > UNHEARD):
            raise Refusal(
                f"executor: no worker of {len(self._commands)} was heard of for {silent / 60:.0f} min, with "
                f"{len(self._shared.waiting())} batches waiting; see: {self._launcher.look()}; run the "
                "command again to go on"
            )

    def _replace(self, ended: Mapping[int, Ended]) -> None:
        lost = {slot: state for slot, state in ended.items() if slot not in self._refused}
        if not lost:
            return
        if self._replaced + len(lost) > LOST * len(self._commands):
            words = next((state.why for state in lost.values() if state.why), "it said nothing")
            raise Refusal(
                f"executor: workers ended {self._replaced + len(lost)} times and brought nothing, last: "
                f"{words}; run the command again to go on"
            )
        self._replaced += len(lost)
        self._launcher.start({slot: self._commands[slot] for slot in lost})

    def left(self) -> None:
        """Wait a moment for workers to exit by themselves."""
        until = time.monotonic() + GRACE
        while time.monotonic() < until and self._seen:
            if not any(self._shared.workers.glob("[0-9]*.json")):
                return
            time.sleep(POLL)


def _appeared(item: tuple[str, _Seen]) -> tuple[float, int]:
    """Sort key: a worker that started later has a later heartbeat and fewer of them."""
    return item[1].at, -item[1].beat


def _place(said: Mapping[str, Any]) -> str:
    device = said.get("device") or ""
    return f"{said['host']} {device}".strip()
