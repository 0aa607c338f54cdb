"""The one confirmatory run of a lock: claim, open the held-out ids, run every cell, check again, seal.

It cannot compute an effect; judging is for `protocol.acts.judge`, once the seal is written.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from protocol import tasks, witnesses
from protocol.acts import select
from protocol.evidence.outside import anchors
from protocol.evidence.refusals import BadInput
from protocol.evidence.run import claim, late_randomness, records, seal
from protocol.evidence.run.held_out import HeldOut
from protocol.locked.study import Study, calibrated, measured, refuse_drift
from protocol.models import calibration, load
from protocol.plan.design import Design
from protocol.running import phase
from protocol.running.runner import Progress
from protocol.tasks import door, prompting

__all__ = ["block", "confirm"]


def confirm(
    study: Study,
    home: Path,
    report: Callable[[Progress], None],
    value: Path | None = None,
    block: Callable[[], late_randomness.Block] | None = None,
    identity: Path | None = None,
) -> str:
    """Run or continue, then seal; returns the sealed outcome digest. A sealed study is not run again.

    value, block: where the late value comes from, if one is registered; see `late.drawn`. identity: a file
    with the private key of held-out problems that are encrypted; it is read here and in each process.

    Raises Drifted when today's bytes differ from the lock (before, half-way or after the run: then nothing is
    sealed), BadInput when a sweep has no selection, a late value or a key is missing, or a held-out prompt
    was seen before, AlreadyClaimed when another process is running it or it is sealed.
    """
    if not (study.folder / claim.NAME).exists():
        late_randomness.drawn(
            study.lock, value, block
        )  # a value that is missing is refused before weights are hashed
    door.refuse_unopenable(study.lock.content["items"], identity)
    refuse_drift(study, home, with_weights=True)
    with claim.running(study.folder):
        protocol = select.confirmed(study)
        attempt = claim.take(study.folder, study.lock, value, block)
        held_out = HeldOut(study.lock, study.folder, identity)
        problems = {task.name: held_out.ids(task.name, _purpose(task.name)) for task in protocol.tasks}
        _refuse_seen(study, protocol, held_out, problems, home)
        cells = study.cells()
        phase.run(
            study,
            protocol,
            cells,
            problems,
            home,
            phase="confirm",
            attempt=attempt,
            report=_checked_halfway(study, home, report),
            held_out=held_out,
        )
        refuse_drift(study, home, with_weights=True)
        return seal.write(study.folder, study.lock)


def block(folder: Path, headers: Path | None) -> witnesses.Block:
    """The block of the lock's proof, from which the late value is drawn."""
    try:
        return witnesses.block(folder, headers)
    except anchors.Unproven as unproven:
        raise BadInput(f"randomness: {unproven}") from None


def _purpose(task: str) -> str:
    return "confirm, decrypted" if door.is_encrypted(task) else "confirm"


def _checked_halfway(
    study: Study, home: Path, report: Callable[[Progress], None]
) -> Callable[[Progress], None]:
    """`report`, and a refusal of drift (weights left out) once half of the problems are recorded."""
    checked = False

    def reported(progress: Progress) -> None:
        nonlocal checked
        report(progress)
        if not checked and 2 * progress.done >= progress.total:
            checked = True
            refuse_drift(study, home, with_weights=False)

    return reported


def _refuse_seen(
    study: Study, protocol: Design, held_out: HeldOut, problems: Mapping[str, Sequence[str]], home: Path
) -> None:
    """Raises BadInput for a held-out problem with a prompt that its model was probed with, or that statistics
    of its model were measured on: by what was fed, whatever its id.
    """
    probed: dict[str, dict[str, str]] = defaultdict(dict)  # by model and digest of the prompt: the problem
    for record in records.read(study.folder / records.FOLDERS["probe"]):
        body = record["body"]
        probed[body["cell"]["model"]][body["prompt"]] = body["problem"]
    for model in protocol.models:
        files = measured(model, home, calibrated(protocol)).values()
        used = frozenset[str]().union(*map(calibration.prompts, files))
        if not used and not probed[model]:
            continue
        tokenizer = load.tokenizer(model, home)
        count = prompting.counter(tokenizer)
        for task in protocol.tasks:
            for problem in problems[task.name]:
                built = tasks.build(task.name, problem, count, held_out)
                if prompting.digest(*prompting.render(built, tokenizer, "inside")) in used:
                    raise BadInput(
                        f"problem {problem!r}: statistics of {model} were measured on its prompt; "
                        "calibrate on other problems and register anew"
                    )
                asked = prompting.digest(*prompting.render(built, tokenizer, task.query))
                if asked in probed[model]:
                    raise BadInput(
                        f"problem {problem!r}: {model} was probed with its prompt, as "
                        f"{probed[model][asked]!r}; register anew on other problems"
                    )
