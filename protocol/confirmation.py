"""The one confirmatory run of a lock: claim, open the held-out ids, run every cell, check again, seal.

It cannot compute an effect; judging is for `protocol.judgement`, once the seal is written.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from protocol import phase, selection, tasks
from protocol.evidence import claim, seal
from protocol.evidence.refusals import BadInput
from protocol.evidence.sealed import HeldOut
from protocol.models import load, statistics
from protocol.runner import Progress
from protocol.spec import Protocol
from protocol.study import Study, calibrated, measured, refuse_drift
from protocol.tasks import prompting

__all__ = ["confirm"]


def confirm(study: Study, home: Path, report: Callable[[Progress], None]) -> str:
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
        _refuse_calibrated(protocol, problems, home)
        cells = study.cells()
        phase.run(study, protocol, cells, problems, home, phase="confirm", attempt=attempt, report=report)
        refuse_drift(study, home, with_weights=True)
        return seal.write(study.folder, study.lock)


def _refuse_calibrated(protocol: Protocol, problems: Mapping[str, Sequence[str]], home: Path) -> None:
    """Raises BadInput for a held-out problem with a prompt that statistics of its model were measured on."""
    for model in protocol.models:
        files = measured(model, home, calibrated(protocol)).values()
        used = frozenset[str]().union(*map(statistics.prompts, files))
        if not used:
            continue
        tokenizer = load.tokenizer(model, home)
        count = prompting.counter(tokenizer)
        for task in protocol.tasks:
            for problem in problems[task.name]:
                built = tasks.get(task.name).build(problem, count)
                if prompting.digest(*prompting.render(built, tokenizer, "inside")) in used:
                    raise BadInput(
                        f"problem {problem!r}: statistics of {model} were measured on its prompt; "
                        "calibrate on other problems and register anew"
                    )
