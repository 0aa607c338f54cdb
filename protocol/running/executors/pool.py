"""Run jobs in several processes of this machine, each with its own loaded model; results come back in order.

A job is one batch, so how many processes share the jobs changes no record. A process that is started for a
study verifies its bytes first, as every worker does.
"""

import multiprocessing
import os
import signal
import socket
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection

from protocol.evidence.refusals import Refusal
from protocol.locked.planned import Planned
from protocol.locked.study import Study
from protocol.running.executors import Executor, Job, Produced, Told
from protocol.running.executors.local import device_name, executor
from protocol.running.executors.settings import LOCAL, Settings, device_of
from protocol.running.executors.worker import prove
from protocol.tasks.door import Opened

__all__ = ["opened"]

AHEAD = 2  # jobs queued per process, so that it does not wait while its last result is recorded


@contextmanager
def opened(
    planned: Planned,
    lanes: Mapping[str, int],
    problems: Opened | None = None,
    report: Callable[[Told], object] = lambda told: None,
    settings: Settings = LOCAL,
    study: Study | None = None,
) -> Iterator[Executor]:
    """Open an executor with as many processes as the settings, or else the protocol, name; this process alone
    if neither does. study: processes verify their bytes against its lock.

    A process whose parent was killed ends after its current job. A refusal in a job is raised here; any other
    error becomes a refusal that names it, after its traceback. report: receives progress updates, if jobs run
    in this process.
    """
    workers = settings.count(planned.protocol.generation.workers)
    if workers == 1 and not settings.devices:
        execute = executor(planned, lanes, problems, report=report)
        where = _where(planned, "")
        yield partial(map, lambda job: execute(job)._replace(where=where))
        return
    devices = settings.devices or ("",) * workers
    seen = [_environment(device) for device in devices]
    # Spawn, because a fork of a process with running torch threads may hang.
    context = multiprocessing.get_context("spawn")
    ours, theirs = zip(*(context.Pipe() for _ in range(workers)), strict=True)
    processes = [
        context.Process(target=serve, args=(end, planned, lanes, problems, device, study))
        for end, device in zip(theirs, devices, strict=True)
    ]
    with _interrupted_alone():
        for process, environment in zip(processes, seen, strict=True):
            with _within(environment):  # set before the spawned process imports torch
                process.start()
    for end in theirs:
        end.close()  # otherwise reading would not end when a process dies
    try:
        yield partial(shared, ours)
    finally:
        for end, process in zip(ours, processes, strict=True):
            end.close()
            process.terminate()
            process.join()


def _environment(device: str) -> dict[str, str]:
    return device_of(device, os.environ.get("CUDA_VISIBLE_DEVICES")) if device else {}


@contextmanager
def _within(environment: Mapping[str, str]) -> Iterator[None]:
    """Set these environment variables for processes started inside, and restore them after."""
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _where(planned: Planned, device: str) -> dict[str, str]:
    """Return the cost fields that describe the machine. device: as requested; empty if none was."""
    name = device_name(planned.protocol.generation.device)
    called = name if device in ("", name) else f"{device} {name}"
    return {"executor": "local", "host": socket.gethostname(), "device": called}


@contextmanager
def _interrupted_alone() -> Iterator[None]:
    """Block SIGINT for processes started inside: this process ends them instead."""
    if os.name != "posix":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def shared(workers: Sequence[Connection], jobs: Iterable[Job]) -> Iterator[Produced]:
    """Yield results in order; jobs are dealt out round-robin, so results are awaited round-robin."""
    asked: deque[Connection] = deque()
    try:
        for number, job in enumerate(jobs):
            worker = workers[number % len(workers)]
            worker.send(job)
            asked.append(worker)
            if len(asked) == AHEAD * len(workers):
                yield received(asked.popleft())
        while asked:
            yield received(asked.popleft())
    except (EOFError, ConnectionError):
        raise Refusal("executor: a process that ran a batch was killed; run the command again") from None


def received(worker: Connection) -> Produced:
    answer: Produced | Refusal = worker.recv()
    if isinstance(answer, Refusal):
        raise answer
    return answer


def serve(
    jobs: Connection,
    planned: Planned,
    lanes: Mapping[str, int],
    problems: Opened | None,
    device: str = "",
    study: Study | None = None,
) -> None:
    """Run jobs in a child process until the other end of `jobs` closes."""
    with suppress(EOFError, ConnectionError, KeyboardInterrupt):
        try:
            if study is not None:
                prove(study)
            execute = executor(planned, lanes, problems)
            where = _where(planned, device)
            while True:
                jobs.send(execute(jobs.recv())._replace(where=where))
        except (EOFError, ConnectionError):
            raise
        except Exception as error:
            if not isinstance(error, Refusal):
                traceback.print_exc()
            jobs.send(error if isinstance(error, Refusal) else Refusal(f"a batch failed: {error!r}"))
            while True:  # drain jobs that were already sent
                jobs.recv()
