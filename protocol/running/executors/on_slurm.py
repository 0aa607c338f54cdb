"""Workers as Slurm jobs, submitted through submitit; each is a command, so nothing of ours is pickled.

`cluster` in the settings is submitit's executor: "slurm"; "local", processes of this machine; "debug", one
process, waited for in a thread of this process.
"""

import shutil
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from protocol.evidence.refusals import BadInput, Refusal
from protocol.running.executors.settings import SLURM, WHOLE, Settings
from protocol.running.executors.spooled import Ended

__all__ = ["WAIT", "OnSlurm", "refuse_missing"]

WAIT = 24 * 3600.0  # seconds; queues of clusters are long
MINUTES = 240  # time limit of a worker unless --slurm time is set: a worker that reaches it is replaced
LEAVE = 10.0  # seconds that processes of this machine get to exit by themselves
ASKED = 2.0  # seconds between two queries of the scheduler


def refuse_missing(settings: Settings) -> None:
    """Raise BadInput if jobs cannot be submitted, ModuleNotFoundError without submitit."""
    import submitit  # noqa: F401  raises without it

    if _cluster(settings) == "slurm" and (
        missing := [each for each in ("sbatch", "srun", "squeue") if not shutil.which(each)]
    ):
        raise BadInput(f"--executor slurm: {', '.join(missing)} not found; run this where jobs are submitted")


class OnSlurm:
    """A launcher on Slurm. cpus, gpus: of a worker, unless the settings override them."""

    def __init__(self, folder: Path, settings: Settings, cpus: int, gpus: int) -> None:
        import submitit

        self._command = submitit.helpers.CommandFunction
        self._cluster = _cluster(settings)
        self._executor = submitit.AutoExecutor(folder=folder / "submitit", cluster=self._cluster)
        asked: dict[str, Any] = {"timeout_min": MINUTES, "slurm_cpus_per_task": cpus, "name": "kv-prereg"}
        asked |= {"slurm_gpus_per_node": gpus} if gpus else {}
        # Without its own allocation `srun` would take all memory of the step's node.
        for name, value in settings.slurm:
            if name != "cluster":
                asked[SLURM[name]] = int(value) if name in WHOLE else value
        self._executor.update_parameters(**asked)
        self._jobs: dict[int, Any] = {}
        self._threads: dict[int, threading.Thread] = {}
        self._known: dict[int, Ended | None] | None = {}
        self._at = 0.0

    def start(self, commands: Mapping[int, Sequence[str]]) -> None:
        try:
            with self._executor.batch():
                jobs = [
                    self._executor.submit(self._command(list(command), verbose=False))
                    for command in commands.values()
                ]
        except subprocess.CalledProcessError as refused:
            raise Refusal(f"executor: sbatch refused: {_last(refused.stderr or refused.output)}") from None
        except Exception as refused:  # submitit's errors, some of class Exception
            raise Refusal(f"executor: submitit could not submit: {_last(str(refused))}") from None
        self._jobs |= dict(zip(commands, jobs, strict=True))
        self._at = 0.0
        if self._cluster == "debug":
            for slot in commands:  # reading the exception runs the job without a debugger
                self._threads[slot] = threading.Thread(target=self._jobs[slot].exception, daemon=True)
                self._threads[slot].start()

    def states(self) -> Mapping[int, Ended | None] | None:
        if time.monotonic() - self._at >= ASKED:
            self._known, self._at = self._asked(), time.monotonic()
        return self._known

    def _asked(self) -> dict[int, Ended | None] | None:
        if self._cluster == "debug":
            return {slot: None if one.is_alive() else Ended("") for slot, one in self._threads.items()}
        if self._cluster == "local":
            return {slot: Ended(_words(job)) if job.done() else None for slot, job in self._jobs.items()}
        queued = self._queued()
        if queued is None:
            return None
        return {
            slot: None if str(job.job_id) in queued else Ended(_words(job))
            for slot, job in self._jobs.items()
        }

    def _queued(self) -> set[str] | None:
        """Return the jobs that wait or run; None if the scheduler does not answer."""
        ids = [str(job.job_id) for job in self._jobs.values()]
        asked = ["squeue", "--noheader", "--array", "--me", "--format=%i"]
        try:
            done = subprocess.run(asked, capture_output=True, text=True, timeout=60)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return set(done.stdout.split()) & set(ids) if done.returncode == 0 else None

    def look(self) -> str:
        ids = sorted({str(job.job_id).partition("_")[0] for job in self._jobs.values()})
        if self._cluster != "slurm":
            return f"the logs in {self._executor.folder}"
        return f"squeue --jobs {','.join(ids)}" if ids else "squeue --me"

    def stop(self) -> None:
        until = time.monotonic() + LEAVE
        while self._cluster == "local" and not all(job.done() for job in self._jobs.values()):
            if time.monotonic() > until:
                break
            time.sleep(0.1)
        for job in self._jobs.values():
            if self._cluster == "debug" or (self._cluster == "local" and job.done()):
                continue
            with suppress(Exception):  # the job has ended, or the scheduler does not answer
                job.cancel(check=False)
        for thread in self._threads.values():
            thread.join(timeout=30)


def _cluster(settings: Settings) -> str:
    return dict(settings.slurm).get("cluster", "slurm")


def _words(job: Any) -> str:
    """Return the last line of the job's error output."""
    try:
        return _last(job.stderr() or "")
    except Exception:  # no log file, or not yet
        return ""


def _last(text: str | bytes) -> str:
    said = text.decode(errors="replace") if isinstance(text, bytes) else text
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    ours = [line for line in lines if line.partition(":")[0].isidentifier() and "Error" not in line[:40]]
    return (ours or lines or [""])[-1][:300]
