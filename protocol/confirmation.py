"""The one confirmatory run of a lock: claim, open the held-out ids, run every cell, check again, seal.

It cannot compute an effect; judging is for `protocol.judgement`, once the seal is written.
"""

from collections.abc import Callable
from pathlib import Path

from protocol import runner, selection
from protocol.evidence import claim, seal
from protocol.evidence.sealed import HeldOut
from protocol.executors.local import executor
from protocol.study import Study, refuse_drift

__all__ = ["confirm"]


def confirm(study: Study, home: Path, report: Callable[[runner.Progress], None]) -> str:
    """Run or continue, then seal; returns the sealed outcome digest. A sealed study is not run again.

    Raises Drifted when today's bytes differ from the lock (before or after the run: then nothing is sealed),
    BadInput when a sweep has no selection, AlreadyClaimed when another process is running it or it is sealed.
    """
    refuse_drift(study, home, with_weights=True)
    with claim.running(study.folder):
        protocol = selection.confirmed(study)
        attempt = claim.take(study.folder, study.lock)
        held_out = HeldOut(study.lock, study.folder)
        problems = {task.name: held_out.ids(task.name, "confirm") for task in protocol.tasks}
        work = runner.units(study.cells(), problems, protocol.generation.problems_per_batch)
        runner.run(
            study.folder,
            work,
            executor(protocol, home, study.lanes()),
            phase="confirm",
            registration=study.lock.digest,
            attempt=attempt,
            report=report,
        )
        refuse_drift(study, home, with_weights=True)
        return seal.write(study.folder, study.lock)
