"""Open the executor that the command-line options select."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from protocol.run.executors import Executor, JobUpdate, process_pool
from protocol.run.executors.answers import open_keeper
from protocol.run.executors.held_out_problems import UnbuiltProblems
from protocol.run.executors.launchers import LAUNCHERS
from protocol.run.executors.settings import LOCAL, Settings
from protocol.run.executors.spool import Spool
from protocol.run.executors.spool_driver import drive_workers
from protocol.tasks import held_out_guard
from protocol.tasks.held_out_guard import HeldOutProblems
from protocol.workspace.planned_study import PlannedStudy
from protocol.workspace.study import Study


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
    count = settings.count(generation.workers)
    gpus = int(generation.device == "cuda")
    kind = LAUNCHERS[settings.kind]
    folder = Spool.for_phase(study.folder, study.lock.digest, phase, settings.spool).folder
    launcher = kind.start(folder, settings, count, generation.threads, gpus)
    # Development problems are not encrypted, and a worker of a probe has no key.
    tasks = {} if held_out_problems is None else planned.tasks
    encrypted_tasks = {name for name, task in tasks.items() if held_out_guard.is_encrypted(task)}
    wait = kind.wait if settings.wait is None else settings.wait
    with (
        open_keeper(planned, held_out_problems) as keeper,
        drive_workers(study, settings, count, launcher, phase, wait, keeper, encrypted_tasks, report) as execute,
    ):
        yield execute
