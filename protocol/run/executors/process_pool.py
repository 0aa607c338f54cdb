"""Run jobs in several processes of this machine, each with its own loaded model; results come back in order.

A job is one batch, so how many processes share the jobs changes no record. A process that is started for a
study verifies its bytes first, as every worker does. Results of own code wait in it for the check that follows them.
"""

import multiprocessing
import os
import pickle
import signal
import socket
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection
from queue import SimpleQueue

from protocol.formats.refusals import Refusal
from protocol.run.executors import Executor, Job, JobResult, JobUpdate, own_code
from protocol.run.executors.answers import AnswerKeeper, RemoteKeeper, open_keeper
from protocol.run.executors.held_out_problems import UnbuiltProblems
from protocol.run.executors.settings import LOCAL, Settings, device_environment
from protocol.run.executors.worker import verify_bytes
from protocol.tasks.held_out_guard import HeldOutProblems
from protocol.workspace.planned_study import PlannedStudy
from protocol.workspace.study import Study

JOBS_PER_PROCESS = 2  # jobs queued per process, so that it does not wait while its last result is recorded
IDLE_SECONDS = 0.1  # without a further job, after which a process checks what waits for it


@contextmanager
def open_executor(
    planned: PlannedStudy,
    lanes: Mapping[str, int],
    held_out_problems: HeldOutProblems | UnbuiltProblems | None = None,
    report: Callable[[JobUpdate], object] = lambda told: None,
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
    if workers == 1 and not settings.devices and not own_code.is_run(planned.protocol):
        # Imported late, here and below: it takes seconds, and a process that decodes nothing needs none of it.
        from protocol.run.executors.local import make_executor

        assert not isinstance(held_out_problems, UnbuiltProblems)
        execute = make_executor(planned, lanes, held_out_problems, report=report)
        machine_fields = _machine_fields(planned, "")
        yield partial(map, lambda job: execute(job)._replace(where=machine_fields))
        return
    devices = settings.devices or ("",) * workers
    environments = [_device_environment(device) for device in devices]
    # Spawn, because a fork of a process with running torch threads may hang.
    context = multiprocessing.get_context("spawn")
    ours, theirs = zip(*(context.Pipe() for _ in range(workers)), strict=True)
    processes = [
        context.Process(target=serve_jobs, args=(end, planned, lanes, device, study))
        for end, device in zip(theirs, devices, strict=True)
    ]
    with _block_interrupts():
        for process, environment in zip(processes, environments, strict=True):
            with _set_environment(environment):  # set before the spawned process imports torch
                process.start()
    for end in theirs:
        end.close()  # otherwise reading would not end when a process dies
    try:
        with open_keeper(planned, held_out_problems) as keeper:
            yield partial(deal_jobs, ours, keeper)
    finally:
        for end, process in zip(ours, processes, strict=True):
            process.terminate()
            process.join()
            end.close()  # last, since a thread may be sending


def _device_environment(device: str) -> dict[str, str]:
    return device_environment(device, os.environ.get("CUDA_VISIBLE_DEVICES")) if device else {}


@contextmanager
def _set_environment(environment: Mapping[str, str]) -> Iterator[None]:
    """Set these environment variables for processes started inside, and restore them after."""
    previous = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        yield
    finally:
        for name, value in previous.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _machine_fields(planned: PlannedStudy, device: str) -> dict[str, str]:
    """Return the cost fields that describe the machine. device: as requested; empty if none was."""
    from protocol.run.executors.local import device_name

    name = device_name(planned.protocol.generation.device)
    label = name if device in ("", name) else f"{device} {name}"
    return {"executor": "local", "host": socket.gethostname(), "device": label}


@contextmanager
def _block_interrupts() -> Iterator[None]:
    """Block SIGINT for processes started inside: this process ends them instead."""
    if os.name != "posix":
        yield
        return
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)


def deal_jobs(
    workers: Sequence[Connection], keeper: AnswerKeeper | RemoteKeeper, jobs: Iterable[Job]
) -> Iterator[JobResult]:
    """Yield results in order; jobs are dealt out round-robin. A worker answers each with the results that wait no
    longer, in order, and leaves none to wait when no further job comes.

    Jobs are sent in threads, since a large one is read only after the answer to the one before was received.
    """
    pending_jobs: deque[tuple[Connection, Job]] = deque()
    busy_workers: deque[Connection] = deque()
    results: dict[Connection, deque[JobResult]] = {worker: deque() for worker in workers}

    def receive() -> Iterator[JobResult]:
        worker = busy_workers.popleft()
        results[worker] += receive_results(worker)
        while pending_jobs and results[pending_jobs[0][0]]:
            worker, job = pending_jobs.popleft()
            yield keeper.grade(job, results[worker].popleft())

    outboxes = {worker: _open_outbox(worker) for worker in workers}
    try:
        for number, job in enumerate(jobs):
            worker = workers[number % len(workers)]
            outboxes[worker].put(pickle.dumps((job, keeper.render(job))))
            pending_jobs.append((worker, job))
            busy_workers.append(worker)
            if len(busy_workers) == JOBS_PER_PROCESS * len(workers):
                yield from receive()
        while busy_workers:
            yield from receive()
    except (EOFError, ConnectionError):
        raise Refusal("executor: a process that ran a batch was killed; run the command again") from None
    finally:
        for outbox in outboxes.values():
            outbox.put(b"")


def _open_outbox(worker: Connection) -> SimpleQueue[bytes]:
    """Return a queue whose messages a thread sends to a worker, in order, up to an empty one."""
    outbox: SimpleQueue[bytes] = SimpleQueue()

    def send() -> None:
        with suppress(OSError):  # a worker that is gone: whoever receives from it says so
            while message := outbox.get():
                worker.send_bytes(message)

    threading.Thread(target=send, daemon=True).start()
    return outbox


def receive_results(worker: Connection) -> list[JobResult]:
    answer: list[JobResult] | Refusal = worker.recv()
    if isinstance(answer, Refusal):
        raise answer
    return answer


def serve_jobs(
    jobs: Connection, planned: PlannedStudy, lanes: Mapping[str, int], device: str = "", study: Study | None = None
) -> None:
    """Decode jobs in a child process until the other end of `jobs` closes."""
    with suppress(EOFError, ConnectionError, KeyboardInterrupt):
        try:
            if study is not None:
                verify_bytes(study)
            from protocol.run.executors.local import make_decoder

            decoder = make_decoder(planned, lanes)
            machine_fields = _machine_fields(planned, device)
            waiting: list[JobResult] = []
            while True:
                waiting.append(decoder.decode(*jobs.recv())._replace(where=machine_fields))
                released: list[JobResult] = []
                if decoder.is_due() or not jobs.poll(IDLE_SECONDS):
                    decoder.check()
                    released, waiting = waiting, []
                jobs.send(released)
        except (EOFError, ConnectionError):
            raise
        except Exception as error:
            if not isinstance(error, Refusal):
                traceback.print_exc()
            jobs.send(error if isinstance(error, Refusal) else Refusal(f"a batch failed: {error!r}"))
            while True:  # drain jobs that were already sent
                jobs.recv()
