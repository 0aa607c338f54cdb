"""A worker of a run: verifies its bytes, then runs jobs of the spool one at a time until the driver is done.

    python -m protocol.run.executors.worker <registration> --lock <digest> --phase confirm ...

An executor starts it; nobody types this command. Like confirm, it unpacks the locked sources on its own
machine and continues there, and runs nothing unless sources, installed files, data and weights on that
machine match the lock. It receives prompts and returns texts: no answer reaches it. It ends when the driver says so
or is gone, and when its parent process is gone.

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
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from protocol.evidence import selection
from protocol.evidence.registration import Registration
from protocol.formats import canonical, files
from protocol.formats.escape import print_escaped
from protocol.formats.refusals import Refusal, Tampered
from protocol.formats.suggestions import explain_os_error
from protocol.run.executors import Decoder, JobPrompts, JobResult, spool
from protocol.run.executors.prompt_handover import Receiver
from protocol.run.executors.spool import Spool, TakenJob
from protocol.workspace import locked_tree

if TYPE_CHECKING:  # with torch
    from protocol.workspace.planned_study import PlannedStudy
    from protocol.workspace.study import Study


POLL_SECONDS = 0.2
ORPHANED_SECONDS = 300.0  # seconds without a heartbeat of the driver after which it counts as gone
TERMINATED = 143
MODULE = "protocol.run.executors.worker"


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
    parser.add_argument("--here", action="store_true", help="run these sources in place")
    args = parser.parse_args(argv, namespace=Options())
    signal.signal(signal.SIGTERM, _exit_on_signal)
    try:
        return run_worker(args)
    except Refusal as refusal:
        print_escaped(f"{type(refusal).__name__}: {refusal}", sys.stderr)
        return refusal.exit_status
    except OSError as refusal:
        print_escaped(f"{type(refusal).__name__}: {explain_os_error(refusal)}", sys.stderr)
        return Refusal.exit_status


def run_worker(args: Options) -> int:
    shared = Spool.for_phase(args.folder, args.lock, args.phase, args.spool)
    status: dict[str, Any] = {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "slot": args.slot,
        "session": args.session,
        "device": args.device,
        "state": "verifying its bytes",
    }
    worker = f"{args.slot}-{status['host']}-{os.getpid()}"
    try:
        with ExitStack() as stack:
            study = Registration(args.folder)
            if study.lock.digest != args.lock:
                raise Tampered(f"{args.folder}: has the lock {study.lock.digest[:12]}, not {args.lock[:12]}")
            if not args.here:
                locked_tree.enter(study, MODULE)
            stack.enter_context(_terminate_with_parent())
            stack.enter_context(spool.keep_heartbeat(shared.workers / f"{worker}.json", lambda: status))
            decoder, receiver = _prepare(study, args, status)
            serve_jobs(shared, worker, decoder, status, args.session, receiver)
    except Refusal as refusal:
        # Not in the heartbeat file, which is removed with this process.
        refusal_status = {**status, "state": "refused", "refused": type(refusal).__name__, "why": str(refusal)}
        _write_refusal(shared.workers / f"{worker}.refused", refusal_status)
        raise
    except Orphaned:
        return 0
    return 0


def _prepare(registration: Registration, args: Options, status: dict[str, Any]) -> tuple[Decoder, Receiver | None]:
    """Verify this machine and return what decodes a job, and the receiver of prompts of encrypted problems."""
    from protocol.run.executors.local import device_name, make_decoder  # with torch
    from protocol.tasks import held_out_guard
    from protocol.workspace.study import open_study

    study = open_study(registration, files.cache_home())
    verify_bytes(study)
    planned = plan_phase(study, args.phase)
    device = device_name(planned.protocol.generation.device)
    status["device"] = f"{args.device} {device}".strip() if device != args.device else device
    receiver = None
    if args.phase == "confirm" and any(map(held_out_guard.is_encrypted, planned.tasks.values())):
        receiver = Receiver()
        status["recipient"] = receiver.recipient
    machine_fields = {"executor": args.executor, "host": status["host"], "device": status["device"]}
    decoder = make_decoder(planned, study.lanes())
    return decoder._replace(
        decode=lambda job, prompts: decoder.decode(job, prompts)._replace(where=machine_fields)
    ), receiver


def verify_bytes(study: "Study") -> None:
    """Raise Drifted unless sources, installed files, data and weights on this machine match the lock."""
    from protocol.workspace.study import refuse_drift

    refuse_drift(study, with_weights=True)


def plan_phase(study: "Study", phase: str) -> "PlannedStudy":
    """Return what the driver runs in this phase; the driver has verified the selection that this reads."""
    protocol = study.protocol
    if phase == "probe":
        protocol = protocol.probe_design()
    elif protocol.sweep is not None:
        protocol = protocol.confirm_design(selection.read(study.registration).content["selected"]["winner"])
    generation = replace(protocol.generation, first_event=study.first_event())
    return study.planned._replace(protocol=replace(protocol, generation=generation))


def serve_jobs(
    shared: Spool, worker: str, decoder: Decoder, status: dict[str, Any], session: str, receiver: Receiver | None = None
) -> None:
    """Run jobs until the driver is done. An error in a job is its result; a folder that cannot be written
    ends this worker, and another worker gets its jobs. Raises Orphaned without a driver.
    """
    driver_watch, results = _DriverWatch(shared, session), _Results(shared, decoder)
    try:
        while True:
            driver_watch.raise_if_gone()
            status["state"] = "waiting"
            taken_job = shared.take(worker)
            if taken_job is None:
                results.release()
                time.sleep(POLL_SECONDS)
                continue
            if shared.has_result(taken_job.name):
                spool.delete_job(taken_job.path)
                continue
            while taken_job.prompts is None and taken_job.path.exists():  # else the driver gave it to another worker
                status["state"] = "waiting for its prompts"
                driver_watch.raise_if_gone()
                taken_job = _receive_prompts(shared, taken_job, receiver)
            if taken_job.prompts is not None:
                status["state"] = "running"
                results.add(taken_job, taken_job.prompts)
    except Orphaned:
        results.release()
        raise


def _receive_prompts(shared: Spool, taken_job: TakenJob, receiver: Receiver | None) -> TakenJob:
    """Return the job with the prompts that the driver handed over; after a moment without them if there are none."""
    data = receiver.receive(taken_job.path) if receiver else None
    if data is not None:
        prompts = spool.restore_prompts(canonical.loads(data, taken_job.path.name))
        if shared.job_name(taken_job.job, prompts) == taken_job.name:
            return taken_job._replace(prompts=prompts)
        spool.delete_job(taken_job.path)  # the driver adds it again
    time.sleep(POLL_SECONDS)
    return taken_job


class _DriverWatch:
    """Watches the heartbeat of a session's driver."""

    def __init__(self, shared: Spool, session: str) -> None:
        self._shared, self._session = shared, session
        self._beat: int | None = None
        self._heard_at = time.monotonic()

    def raise_if_gone(self) -> None:
        """Raise Orphaned if the driver is done, is gone, or belongs to another session."""
        status = spool.read_json(self._shared.driver)
        if status is not None and status.get("session") != self._session:
            raise Orphaned
        if status is not None and status["beat"] != self._beat:
            self._beat, self._heard_at = status["beat"], time.monotonic()
        elif time.monotonic() - self._heard_at > ORPHANED_SECONDS or (
            self._beat is not None and not self._shared.folder.exists()
        ):
            raise Orphaned


class _Results:
    """Runs jobs, and writes their results when the check that follows them has passed."""

    def __init__(self, shared: Spool, decoder: Decoder) -> None:
        self._shared, self._decoder = shared, decoder
        self._waiting: list[tuple[TakenJob, JobResult]] = []

    def add(self, taken_job: TakenJob, prompts: JobPrompts) -> None:
        try:
            self._waiting.append((taken_job, self._decoder.decode(taken_job.job, prompts)))
        except Refusal as refusal:
            self._shared.write_refusal(taken_job, refusal)
            if isinstance(refusal, Tampered):
                self._refuse(refusal)
        except Exception as error:
            traceback.print_exc()
            self._shared.write_refusal(taken_job, Refusal(f"a batch failed: {error!r}"))
        if self._decoder.is_due():
            self.release()

    def release(self) -> None:
        """Check, and write the results that waited for it."""
        if not self._waiting:
            return
        try:
            self._decoder.check()
        except Refusal as refusal:
            self._refuse(refusal)
        for waiting in self._waiting:
            self._shared.write_result(*waiting)
        self._waiting.clear()

    def _refuse(self, refusal: Refusal) -> None:
        for taken_job, _ in self._waiting:
            self._shared.write_refusal(taken_job, refusal)
        self._waiting.clear()


def _write_refusal(path: Path, status: Mapping[str, Any]) -> None:
    """Write the refusal for the driver to find after this process ends. Without it the exit status tells as much."""
    with suppress(OSError, Refusal):
        files.replace(path, canonical.dumps({**status, "pid": str(status["pid"])}))


def _exit_on_signal(number: int, frame: FrameType | None) -> None:
    raise SystemExit(TERMINATED)


@contextmanager
def _terminate_with_parent() -> Iterator[None]:
    """Inside the context, terminate this process when its parent is gone, since then nothing waits for it."""
    import threading

    parent, stopped = os.getppid(), threading.Event()

    def watch() -> None:
        while not stopped.wait(spool.HEARTBEAT_SECONDS):
            if os.getppid() != parent:
                os.kill(os.getpid(), signal.SIGTERM)
                return

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        stopped.set()


if __name__ == "__main__":
    sys.exit(locked_tree.run(lambda argv=None, *, enter=False: main(argv)))
