"""Open the executor that the command-line options select."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from protocol.locked.planned import Planned
from protocol.locked.study import Study
from protocol.running.executors import Executor, Job, Told, on_ray, on_slurm, pool
from protocol.running.executors.settings import LOCAL, Settings
from protocol.running.executors.spool import Spool
from protocol.running.executors.spooled import Launcher, driven
from protocol.tasks import door
from protocol.tasks.door import Opened

__all__ = ["opened"]


@contextmanager
def opened(
    study: Study,
    planned: Planned,
    phase: str,
    problems: Opened | None,
    settings: Settings = LOCAL,
    report: Callable[[Told], object] = lambda told: None,
) -> Iterator[Executor]:
    """Open an executor for one phase of a study. planned: the part of the study that runs now."""
    generation = planned.protocol.generation
    if settings.kind == "local":
        with pool.opened(planned, study.lanes(), problems, report, settings, study) as execute:
            yield execute
        return
    count = settings.count(generation.workers)
    gpus = int(generation.device == "cuda")
    launcher: Launcher
    if settings.kind == "slurm":
        place = Spool.of(study.folder, study.lock.digest, phase, settings.spool).place
        launcher = on_slurm.OnSlurm(place, settings, generation.threads, gpus)
        wait = on_slurm.WAIT
    else:
        launcher = on_ray.OnRay(settings, count, generation.threads, gpus)
        wait = on_ray.WAIT
    encrypted = {name for name, task in planned.tasks.items() if door.is_encrypted(task)}

    def given(job: Job) -> Mapping[str, Any]:
        """Return decrypted problems: the key does not leave this process."""
        if problems is None or job.task not in encrypted:
            return {}
        return {each: problems.problem(job.model, job.task, each)._asdict() for each in job.problems}

    wait = wait if settings.wait is None else settings.wait
    with driven(study, settings, count, launcher, phase, wait, given, report) as execute:
        yield execute
