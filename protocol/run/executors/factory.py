"""Open the executor that the command-line options select."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from protocol.run.executors import Executor, Job, JobUpdate, process_pool
from protocol.run.executors.held_out_problems import UnbuiltProblems
from protocol.run.executors.launchers import LAUNCHERS
from protocol.run.executors.local import build_problems
from protocol.run.executors.settings import LOCAL, Settings
from protocol.run.executors.spool import Spool
from protocol.run.executors.spool_driver import drive_workers
from protocol.tasks import held_out_guard
from protocol.tasks.held_out_guard import HeldOutProblems
from protocol.workspace.planned_study import PlannedStudy
from protocol.workspace.study import Study

__all__ = ["open_executor"]


@contextmanager
def open_executor(
    study: Study,
    planned: PlannedStudy,
    phase: str,
    held_out_problems: HeldOutProblems | UnbuiltProblems | None,
    settings: Settings = LOCAL,
    report: Callable[[JobUpdate], object] = lambda told: None,
) -> Iterator[Executor]:
    """Open an executor for one phase of a study. planned: the part of the study that runs now."""
    generation = planned.protocol.generation
    if settings.kind == "local":
        with process_pool.open_executor(planned, study.lanes(), held_out_problems, report, settings, study) as execute:
            yield execute
        return
    if isinstance(held_out_problems, UnbuiltProblems):  # workers of a cluster build their own
        held_out_problems = build_problems(planned, held_out_problems)
    count = settings.count(generation.workers)
    gpus = int(generation.device == "cuda")
    kind = LAUNCHERS[settings.kind]
    folder = Spool.for_phase(study.folder, study.lock.digest, phase, settings.spool).folder
    launcher = kind.start(folder, settings, count, generation.threads, gpus)
    encrypted_tasks = {name for name, task in planned.tasks.items() if held_out_guard.is_encrypted(task)}

    def decrypt_problems(job: Job) -> Mapping[str, Any]:
        """Return decrypted problems: the key does not leave this process."""
        if held_out_problems is None or job.task not in encrypted_tasks:
            return {}
        return {
            problem_id: held_out_problems.problem(job.model, job.task, problem_id)._asdict()
            for problem_id in job.problems
        }

    wait = kind.wait if settings.wait is None else settings.wait
    with drive_workers(study, settings, count, launcher, phase, wait, decrypt_problems, report) as execute:
        yield execute
