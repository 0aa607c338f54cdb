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

from protocol.formats.refusals import BadInput, Refusal
from protocol.run.executors.settings import INTEGER_OPTIONS, SLURM_OPTIONS, Settings
from protocol.run.executors.spool_driver import WorkerExit

WAIT_SECONDS = 24 * 3600.0  # seconds; queues of clusters are long
DEFAULT_MINUTES = 240  # time limit of a worker unless --slurm time is set: a worker that reaches it is replaced
EXIT_SECONDS = 10.0  # seconds that processes of this machine get to exit by themselves
QUERY_SECONDS = 2.0  # seconds between two queries of the scheduler


def refuse_missing(settings: Settings) -> None:
    """Raise BadInput if jobs cannot be submitted, ModuleNotFoundError without submitit."""
    import submitit  # noqa: F401  raises without it

    if _cluster(settings) == "slurm" and (
        missing := [command for command in ("sbatch", "srun", "squeue") if not shutil.which(command)]
    ):
        raise BadInput(
            f"--executor slurm: {', '.join(missing)} not found; run this on a machine from which jobs can be submitted"
        )


class SlurmLauncher:
    """A launcher on Slurm. cpus, gpus: of a worker, unless the settings override them."""

    def __init__(self, folder: Path, settings: Settings, count: int, cpus: int, gpus: int) -> None:
        import submitit

        self._command = submitit.helpers.CommandFunction
        self._cluster = _cluster(settings)
        self._executor = submitit.AutoExecutor(folder=folder / "submitit", cluster=self._cluster)
        parameters: dict[str, Any] = {"timeout_min": DEFAULT_MINUTES, "slurm_cpus_per_task": cpus, "name": "kv-prereg"}
        parameters |= {"slurm_gpus_per_node": gpus} if gpus else {}
        # Without its own allocation `srun` would take all memory of the step's node.
        for name, value in settings.slurm:
            if name != "cluster":
                parameters[SLURM_OPTIONS[name]] = int(value) if name in INTEGER_OPTIONS else value
        self._executor.update_parameters(**parameters)
        self._jobs: dict[int, Any] = {}
        self._threads: dict[int, threading.Thread] = {}
        self._states: dict[int, WorkerExit | None] | None = {}
        self._queried_at = 0.0

    def start(self, commands: Mapping[int, Sequence[str]]) -> None:
        try:
            with self._executor.batch():
                jobs = [
                    self._executor.submit(self._command(list(command), verbose=False)) for command in commands.values()
                ]
        except subprocess.CalledProcessError as error:
            raise Refusal(f"executor: sbatch refused: {_last_line(error.stderr or error.output)}") from None
        except Exception as error:  # submitit's errors, some of class Exception
            raise Refusal(f"executor: submitit could not submit: {_last_line(str(error))}") from None
        self._jobs |= dict(zip(commands, jobs, strict=True))
        self._queried_at = 0.0
        if self._cluster == "debug":
            for slot in commands:  # reading the exception runs the job without a debugger
                self._threads[slot] = threading.Thread(target=self._jobs[slot].exception, daemon=True)
                self._threads[slot].start()

    def states(self) -> Mapping[int, WorkerExit | None] | None:
        if time.monotonic() - self._queried_at >= QUERY_SECONDS:
            self._states, self._queried_at = self._query_states(), time.monotonic()
        return self._states

    def _query_states(self) -> dict[int, WorkerExit | None] | None:
        if self._cluster == "debug":
            return {slot: None if thread.is_alive() else WorkerExit("") for slot, thread in self._threads.items()}
        if self._cluster == "local":
            return {slot: WorkerExit(_error_output(job)) if job.done() else None for slot, job in self._jobs.items()}
        queued = self._query_queue()
        if queued is None:
            return None
        return {
            slot: None if str(job.job_id) in queued else WorkerExit(_error_output(job))
            for slot, job in self._jobs.items()
        }

    def _query_queue(self) -> set[str] | None:
        """Return the jobs that wait or run; None if the scheduler does not answer."""
        ids = [str(job.job_id) for job in self._jobs.values()]
        command = ["squeue", "--noheader", "--array", "--me", "--format=%i"]
        try:
            result = subprocess.run(command, capture_output=True, text=True, timeout=60)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return set(result.stdout.split()) & set(ids) if result.returncode == 0 else None

    def status_command(self) -> str:
        ids = sorted({str(job.job_id).partition("_")[0] for job in self._jobs.values()})
        if self._cluster != "slurm":
            return f"the logs in {self._executor.folder}"
        return f"squeue --jobs {','.join(ids)}" if ids else "squeue --me"

    def stop(self) -> None:
        deadline = time.monotonic() + EXIT_SECONDS
        while self._cluster == "local" and not all(job.done() for job in self._jobs.values()):
            if time.monotonic() > deadline:
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


def _error_output(job: Any) -> str:
    """Return the last line of the job's error output."""
    try:
        return _last_line(job.stderr() or "")
    except Exception:  # no log file, or not yet
        return ""


def _last_line(text: str | bytes) -> str:
    output = text.decode(errors="replace") if isinstance(text, bytes) else text
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    error_lines = [line for line in lines if line.partition(":")[0].isidentifier() and "Error" not in line[:40]]
    return (error_lines or lines or [""])[-1][:300]
