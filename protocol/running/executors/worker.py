"""A worker of a run: verifies its bytes, then runs jobs of the spool one at a time until the driver is done.

    python -m protocol.running.executors.worker <registration> --lock <digest> --phase confirm ...

An executor starts it; nobody types this command. Like confirm, it unpacks the locked sources on its own
machine and continues there, and runs nothing unless sources, installed files, data and weights on that
machine match the lock. It receives problem ids and builds held-out problems itself, through the guard that
checks the claim. It ends when the driver says so or is gone, and when its parent process is gone.

Exit status: 0 done, or the driver is gone; 2 bad input; 3 drifted or tampered.
"""

import argparse
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from protocol.evidence.bytes import canonical, files
from protocol.evidence.bytes.shown import put
from protocol.evidence.refusals import Refusal, Tampered, of_system
from protocol.evidence.run import selection
from protocol.evidence.run.registration import Registration
from protocol.locked import tree
from protocol.models import sources
from protocol.running.executors import Execute, spool
from protocol.running.executors.handing import Receiver
from protocol.running.executors.spool import Asked, Spool

if TYPE_CHECKING:  # with torch
    from protocol.locked.planned import Planned
    from protocol.locked.study import Study
    from protocol.tasks.door import OnDemand

__all__ = ["Orphaned", "main", "planned_of", "prove", "serve"]

POLL = 0.2
ALONE = 300.0  # seconds without a heartbeat of the driver after which it counts as gone
TERMINATED = 143
MODULE = "protocol.running.executors.worker"


class Options(argparse.Namespace):
    folder: Path
    lock: str
    phase: str
    spool: Path
    session: str
    slot: int
    device: str
    executor: str
    here: bool


class Orphaned(Exception):
    """The driver is done, is gone, or belongs to another session."""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    for name in ("--lock", "--phase", "--session", "--executor", "--device"):
        parser.add_argument(name, default="")
    parser.add_argument("--spool", type=Path)
    parser.add_argument("--slot", type=int)
    parser.add_argument("--here", action="store_true", help="run these sources where they are")
    args = parser.parse_args(argv, namespace=Options())
    signal.signal(signal.SIGTERM, _terminated)
    try:
        return act(args)
    except Refusal as refused:
        put(f"{type(refused).__name__}: {refused}", sys.stderr)
        return refused.exit_status
    except OSError as refused:
        put(f"{type(refused).__name__}: {of_system(refused)}", sys.stderr)
        return Refusal.exit_status


def act(args: Options) -> int:
    shared = Spool.of(args.folder, args.lock, args.phase, args.spool)
    says: dict[str, Any] = {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "slot": args.slot,
        "session": args.session,
        "device": args.device,
        "state": "proving its bytes",
    }
    worker = f"{args.slot}-{says['host']}-{os.getpid()}"
    try:
        with ExitStack() as held:
            study = Registration(args.folder)
            if study.lock.digest != args.lock:
                raise Tampered(f"{args.folder}: has the lock {study.lock.digest[:12]}, not {args.lock[:12]}")
            if not args.here:
                tree.enter(study, MODULE)
            held.enter_context(_ended_with_parent())
            held.enter_context(spool.beating(shared.workers / f"{worker}.json", lambda: says))
            execute, reached, receiver = _ready(study, args, says)
            serve(shared, worker, execute, reached, says, args.session, receiver)
    except Refusal as refused:
        # Not in the heartbeat file, which is removed with this process.
        said = {**says, "state": "refused", "refused": type(refused).__name__, "why": str(refused)}
        _leave(shared.workers / f"{worker}.refused", said)
        raise
    except Orphaned:
        return 0
    return 0


def _ready(
    registration: Registration, args: Options, says: dict[str, Any]
) -> "tuple[Execute, OnDemand | None, Receiver | None]":
    """Verify this machine and return what runs a job, the lazily built held-out problems, and the receiver of
    encrypted problems.
    """
    from protocol.evidence.run.held_out import HeldOut  # the following imports load torch
    from protocol.locked.study import open_study
    from protocol.models import load
    from protocol.running.executors.local import device_name, executor
    from protocol.tasks import door, prompting
    from protocol.tasks.door import OnDemand, Opened

    study = open_study(registration, sources.home())
    prove(study)
    planned = planned_of(study, args.phase)
    device = device_name(planned.protocol.generation.device)
    says["device"] = f"{args.device} {device}".strip() if device != args.device else device
    opened = reached = receiver = None
    if args.phase == "confirm":
        held_out = HeldOut(study.lock, study.folder)
        counts = cache(lambda model: prompting.counter(load.tokenizer(model, planned.home)))
        reached = OnDemand(held_out, planned.tasks, counts)
        opened = Opened(held_out, held_out.key(), reached)
        if any(map(door.is_encrypted, planned.tasks.values())):
            receiver = Receiver()
            says["recipient"] = receiver.recipient
    where = {"executor": args.executor, "host": says["host"], "device": says["device"]}
    execute = executor(planned, study.lanes(), opened)
    return lambda job: execute(job)._replace(where=where), reached, receiver


def prove(study: "Study") -> None:
    """Raise Drifted unless sources, installed files, data and weights on this machine match the lock."""
    from protocol.locked.study import refuse_drift

    refuse_drift(study, with_weights=True)


def planned_of(study: "Study", phase: str) -> "Planned":
    """Return what the driver runs in this phase; the driver has verified the selection that this reads."""
    protocol = study.protocol
    if phase == "probe":
        protocol = protocol.probed()
    elif protocol.sweep is not None:
        protocol = protocol.confirmed(selection.read(study.registration).content["selected"]["winner"])
    generation = protocol.generation._replace(first_event=study.first_event())
    return study.planned._replace(protocol=replace(protocol, generation=generation))


def serve(
    shared: Spool,
    worker: str,
    execute: Execute,
    reached: "OnDemand | None",
    says: dict[str, Any],
    session: str,
    receiver: Receiver | None = None,
) -> None:
    """Run jobs until the driver is done. An error in a job is its result; a folder that cannot be written
    ends this worker, and another worker gets its job. Raises Orphaned without a driver.
    """
    driver = _Driver(shared, session)
    while True:
        driver.refuse_gone()
        says["state"] = "waiting"
        asked = shared.take(worker)
        if asked is None:
            time.sleep(POLL)
            continue
        if shared.has(asked.name):
            spool.drop(asked.place)
            continue
        given: Mapping[str, Any] | None = {}
        if asked.handed and receiver is not None:
            says["state"] = "waiting for its problems"
            while (given := receiver.received(asked.place)) is None and asked.place.exists():
                driver.refuse_gone()
                time.sleep(POLL)
        if given is None:  # the driver gave this job to another worker
            continue
        if reached is not None:
            reached.given = {(asked.job.task, name): _problem(each) for name, each in given.items()}
        says["state"] = "running"
        _run(shared, asked, execute)


class _Driver:
    """Watches the heartbeat of a session's driver."""

    def __init__(self, shared: Spool, session: str) -> None:
        self._shared, self._session = shared, session
        self._beat: int | None = None
        self._seen = time.monotonic()

    def refuse_gone(self) -> None:
        """Raise Orphaned if the driver is done, is gone, or belongs to another session."""
        said = spool.read_json(self._shared.driver)
        if said is not None and said.get("session") != self._session:
            raise Orphaned
        if said is not None and said["beat"] != self._beat:
            self._beat, self._seen = said["beat"], time.monotonic()
        elif time.monotonic() - self._seen > ALONE or (
            self._beat is not None and not self._shared.place.exists()
        ):
            raise Orphaned


def _run(shared: Spool, asked: Asked, execute: Execute) -> None:
    try:
        produced = execute(asked.job)
    except Refusal as refused:
        shared.refuse(asked, refused)
        return
    except Exception as error:
        traceback.print_exc()
        shared.refuse(asked, Refusal(f"a batch failed: {error!r}"))
        return
    shared.finish(asked, produced)


def _problem(fields: Mapping[str, Any]) -> Any:
    from protocol.tasks.problem import Problem

    gold = fields["gold"]
    return Problem(**{**fields, "gold": tuple(gold) if isinstance(gold, list) else gold})


def _leave(path: Path, said: Mapping[str, Any]) -> None:
    """Write the refusal for the driver to find after this process ends. Without it the exit status tells as
    much.
    """
    with suppress(OSError, Refusal):
        files.replace(path, canonical.dumps({**said, "pid": str(said["pid"])}))


def _terminated(number: int, frame: FrameType | None) -> None:
    raise SystemExit(TERMINATED)


@contextmanager
def _ended_with_parent() -> Iterator[None]:
    """Inside the context, terminate this process when its parent is gone, since then nothing waits for it."""
    import threading

    parent, over = os.getppid(), threading.Event()

    def watch() -> None:
        while not over.wait(spool.BEAT):
            if os.getppid() != parent:
                os.kill(os.getpid(), signal.SIGTERM)
                return

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        over.set()


if __name__ == "__main__":
    sys.exit(tree.run(lambda argv=None, *, enter=False: main(argv)))
