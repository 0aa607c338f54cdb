"""Run jobs in several processes, each of which holds the model it works on; what comes back is in order.

A job is one batch by itself, so how many processes share the jobs changes no record.
"""

import multiprocessing
import os
import signal
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection

from protocol.evidence.refusals import Refusal
from protocol.locked.planned import Planned
from protocol.running.executors import Executor, Job, Produced, Told
from protocol.running.executors.local import executor
from protocol.tasks.door import Opened

__all__ = ["opened"]

AHEAD = 2  # jobs that a process has at once, so that it need not wait while its last one is recorded


@contextmanager
def opened(
    planned: Planned,
    lanes: Mapping[str, int],
    problems: Opened | None = None,
    report: Callable[[Told], object] = lambda told: None,
) -> Iterator[Executor]:
    """An executor of as many processes as the protocol registers; of this one alone where it names none.

    A process whose parent was killed ends with the job that it has begun. What a job refuses is refused here,
    and what else goes wrong in it is a refusal that names it, after its traceback. report: is told what is
    done, where it is done in this process.
    """
    workers = planned.protocol.generation.workers or 1
    if workers == 1:
        yield partial(map, executor(planned, lanes, problems, report=report))
        return
    # Spawned: a forked copy of a process with running torch threads may hang.
    context = multiprocessing.get_context("spawn")
    ours, theirs = zip(*(context.Pipe() for _ in range(workers)), strict=True)
    settings = (planned, lanes, problems)
    processes = [context.Process(target=serve, args=(end, *settings)) for end in theirs]
    with _interrupted_alone():
        for process in processes:
            process.start()
    for end in theirs:
        end.close()  # else the death of a process would not end what we read from it
    try:
        yield partial(shared, ours)
    finally:
        for end, process in zip(ours, processes, strict=True):
            end.close()
            process.terminate()
            process.join()


@contextmanager
def _interrupted_alone() -> Iterator[None]:
    """What starts inside is not interrupted with this process: it is ended by it."""
    if os.name != "posix":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def shared(workers: Sequence[Connection], jobs: Iterable[Job]) -> Iterator[Produced]:
    """Jobs are dealt out in turn, so that results are awaited in turn."""
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


def serve(jobs: Connection, planned: Planned, lanes: Mapping[str, int], problems: Opened | None) -> None:
    """The life of a process: it ends when the other end of `jobs` does."""
    with suppress(EOFError, ConnectionError, KeyboardInterrupt):
        try:
            execute = executor(planned, lanes, problems)
            while True:
                jobs.send(execute(jobs.recv()))
        except (EOFError, ConnectionError):
            raise
        except Exception as error:
            if not isinstance(error, Refusal):
                traceback.print_exc()
            jobs.send(error if isinstance(error, Refusal) else Refusal(f"a batch failed: {error!r}"))
            while True:  # other jobs may be on their way
                jobs.recv()
