"""A toy study run by executors: no model, so that its processes may be killed often.

python toy_run.py <folder> <kind>       a driver: claims, records, seals
python toy_run.py work ...              a worker, with the words of a real one
"""

import os
import signal
import socket
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import finished_study as toy

from protocol.evidence import claim, records, seal
from protocol.evidence.held_out_guard import HeldOutGuard
from protocol.evidence.registration import Registration
from protocol.formats import canonical
from protocol.lock import lock
from protocol.plan.grid import Cell
from protocol.run.executors import (
    Decoder,
    Job,
    JobPrompts,
    JobResult,
    RenderedPrompt,
    ray_launcher,
    slurm_launcher,
    spool,
    spool_driver,
    worker,
)
from protocol.run.executors.settings import Settings
from protocol.run.executors.spool import Spool

PROBLEMS = [f"p{number}" for number in range(2, 182)]
CELLS = tuple(Cell("tiny", "toy", "full" if arm == "full" else "0.5", arm, 0) for arm in toy.ARMS)
JOBS = [Job("tiny", "toy", (problem,), CELLS) for problem in PROBLEMS]
TAKES = 0.3  # seconds, of a batch
WORKERS = 2


GRADES = ("answer", "grade", "grade_reason")


class Keeper:
    """What the driver knows of the toy's problems. Their tokens are the bytes of `text`."""

    def __init__(self, text=b""):
        self.text = text

    def render(self, job):
        prompts = [RenderedPrompt(each, "", (*each.encode(), *self.text), (), each[1] * 64) for each in job.problems]
        return JobPrompts(tuple(prompts), {0: 2**63})

    def grade(self, job, result):
        for (cell, problem), (body, _) in result.records.items():
            assert not body.keys() & set(GRADES)
            body |= {name: toy.body("", cell.arm, problem)[name] for name in GRADES}
        return result


def produced(job, prompts=None):
    """What a lane of the toy study leaves, whoever runs it; nobody has graded it."""
    sides = tuple({"held": toy.held(arm), "allocated": 4 * [toy.ROOM], "heads": 4} for arm in toy.ARMS)
    name = canonical.digest(list(sides))
    found = {}
    for problem in job.problems:
        for place, cell in enumerate(job.cells):
            body = toy.body("", cell.arm, problem, trajectory=records.make_citation(name, place))
            for field in ("registration", "phase", *GRADES):
                del body[field]
            found[cell, problem] = (body, {"prefill_seconds": "0.1", "decode_seconds": "0.2"})
    return JobResult(found, sides, 0.25)


def slowly(job, prompts):
    time.sleep(TAKES)
    return produced(job)


def launcher(kind, place):
    cluster = kind.removeprefix("submitit-")
    if kind == "ray":
        return ray_launcher.RayLauncher(place, Settings("ray"), WORKERS, 1, 0)
    return slurm_launcher.SlurmLauncher(place, Settings("slurm", slurm=(("cluster", cluster),)), WORKERS, 1, 0)


def drive(folder, kind):
    """As `confirm` does, with workers of this file."""
    from protocol.run import runner  # with torch

    held = lock.read(folder)
    study = SimpleNamespace(folder=folder, lock=held, planned=SimpleNamespace(home=folder))
    own = spool_driver.worker_command

    def command(*given):
        words = own(*given)
        at = words.index("-m")
        paths = os.pathsep.join([str(Path(toy.__file__).parent), os.environ["PYTHONPATH"]])
        return ["env", f"PYTHONPATH={paths}", words[at - 2], __file__, "work", *words[at + 2 :]]

    spool_driver.worker_command = command
    if kind == "local":
        opened = pooled()
    else:
        settings = Settings("ray" if kind == "ray" else "slurm")
        place = Spool.for_phase(folder, held.digest, "confirm").folder
        count = 1 if kind == "submitit-debug" else WORKERS

        def opened():
            starting = launcher(kind, place)
            silent = (Keeper(), (), lambda told: None)
            return spool_driver.drive_workers(study, settings, count, starting, "confirm", 120, *silent)

    with claim.exclusive_run(Registration(folder)):
        attempt = claim.take(Registration.with_lock(folder, held))
        HeldOutGuard(held, folder).ids("toy", "confirm")
        with opened() as execute:
            runner.record_units(
                folder,
                JOBS,
                execute,
                phase="confirm",
                registration=held.digest,
                attempt=attempt,
                report=lambda event: None,
            )
        print("sealed", seal.write(Registration.with_lock(folder, held)))


def pooled():
    """Processes of one machine, as `pool` starts them; what runs a job in them is of this file."""
    from protocol.run.executors import process_pool

    process_pool.serve_jobs = piped
    process_pool.open_keeper = lambda *given: nullcontext(Keeper())
    planned = SimpleNamespace(protocol=SimpleNamespace(generation=SimpleNamespace(workers=WORKERS), arms=()))
    return lambda: process_pool.open_executor(planned, {})


def piped(jobs, planned, lanes, device="", study=None):
    from protocol.run.executors import local, process_pool

    local.make_decoder = lambda *given: Decoder(slowly)
    process_pool._machine_fields = lambda planned, device: {"executor": "local"}
    process_pool.serve_jobs(jobs, planned, lanes)


def work(words):
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))
    given = dict(zip(words[1::2], words[2::2], strict=False))
    own = Spool.for_phase(Path(words[0]), given["--lock"], given["--phase"])
    slot, host = int(given["--slot"]), socket.gethostname()
    name = f"{slot}-{host}-{os.getpid()}"
    says = {"host": host, "slot": slot, "session": given["--session"], "state": "", "device": "cpu"}
    with worker._terminate_with_parent(), spool.keep_heartbeat(own.workers / f"{name}.json", lambda: dict(says)):
        try:
            worker.serve_jobs(own, name, Decoder(slowly), says, given["--session"])
        except worker.Orphaned:
            return


if __name__ == "__main__":
    if sys.argv[1] == "work":
        work(sys.argv[2:])
    else:
        drive(Path(sys.argv[1]), sys.argv[2])
