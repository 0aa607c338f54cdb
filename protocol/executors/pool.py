"""Run jobs in several processes, each of which holds the model it works on; what comes back is in order.

A job is one batch by itself, so how many processes share the jobs changes no record.
"""

import multiprocessing
import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from protocol.executors import Execute, Executor, Job, Produced
from protocol.executors.local import executor
from protocol.spec import Protocol

__all__ = ["opened"]


@contextmanager
def opened(protocol: Protocol, home: Path, lanes: Mapping[str, int]) -> Iterator[Executor]:
    """An executor of as many processes as the protocol registers; of this one alone where it names none."""
    workers = protocol.generation.workers or 1
    if workers == 1:
        with executor(protocol, home, lanes) as execute:
            yield lambda jobs: map(execute, jobs)
        return
    # Spawned: a forked copy of a process with running torch threads may hang.
    pool = ProcessPoolExecutor(
        workers, multiprocessing.get_context("spawn"), start, initargs=(protocol, home, lanes)
    )
    try:
        yield lambda jobs: ahead(pool, jobs, 2 * workers)
    finally:
        pool.shutdown(cancel_futures=True)


def ahead(pool: ProcessPoolExecutor, jobs: Iterable[Job], most: int) -> Iterator[Produced]:
    """Results in the order of the jobs, at most `most` of which are under way or waiting to be fetched."""
    waiting: deque[Future[Produced]] = deque()
    for job in jobs:
        waiting.append(pool.submit(work, job))
        if len(waiting) == most:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


class Worker:
    """What a process of the pool has opened; it lives as long as the process."""

    execute: Execute


def start(protocol: Protocol, home: Path, lanes: Mapping[str, int]) -> None:
    threading.Thread(target=end_with_parent, daemon=True).start()
    Worker.execute = staticmethod(ExitStack().enter_context(executor(protocol, home, lanes)))


def end_with_parent() -> None:
    """A process whose parent was killed gets no more jobs and would wait for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def work(job: Job) -> Produced:
    return Worker.execute(job)
