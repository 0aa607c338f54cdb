"""The one confirmatory run of a lock: claim, open the held-out ids, run every cell, check again, seal.

It cannot compute an effect; `protocol.acts.judge` judges after the seal is written.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from analysis.output import phases
from analysis.output.phases import phase
from protocol.acts import beforehand, select
from protocol.acts.locking import unedited
from protocol.evidence.refusals import BadInput
from protocol.evidence.run import claim, late_randomness, ledger, seal
from protocol.evidence.run.held_out import HeldOut
from protocol.locked.planned import Planned
from protocol.locked.study import Study, refuse_drift
from protocol.models import calibration, load
from protocol.running import progress, runner
from protocol.running.executors import beforehand as executors
from protocol.running.executors.settings import LOCAL, Settings
from protocol.running.runner import Event, Progress
from protocol.tasks import door, prompting
from protocol.tasks.door import Opened
from protocol.tasks.problem import Problem

__all__ = ["confirm"]


def confirm(
    study: Study,
    value: Path | None = None,
    block: Callable[[], late_randomness.Block] | None = None,
    identity: Path | None = None,
    settings: Settings = LOCAL,
) -> str:
    """Run or continue, then seal; return the sealed outcome digest. A sealed study is not run again.

    value, block: where the late value comes from, if one is registered; see `late_randomness.drawn`.
    identity: a file with the private key of held-out problems that are encrypted. settings: where it runs,
    which changes no outcome.

    Raises as `preflight.check_confirm` and `verify_before_claim.refuse_edited_lock`, Drifted when today's
    bytes differ from the lock (before, half-way or after the run: then nothing is sealed), BadInput when a
    model has seen a held-out prompt before, AlreadyClaimed when it is sealed.
    """
    beforehand.confirm(study.registration, value, block, identity)
    executors.refuse(settings, study.protocol.generation.device)
    with phase("hashing sources, packages and weights"):
        refuse_drift(study, with_weights=True)
    with phase("deriving the lock again"):
        unedited.refuse_edited(study)
    with claim.running(study.registration):
        # Files that were read before the claim was locked may have changed.
        study = replace(study, registration=study.registration.anew())
        planned = study.planned._replace(protocol=select.confirmed(study))
        attempt = claim.take(study.registration, value, block)
        held_out = HeldOut(study.lock, study.folder, identity)
        problems = {}
        for name, task in planned.tasks.items():
            purpose = "confirm, decrypted" if door.is_encrypted(task) else "confirm"
            problems[name] = held_out.ids(name, purpose)
        with phase("building the held-out problems"):
            opened = _opened(planned, held_out, problems)
            _refuse_seen(study, planned, opened)
        cells = study.cells()
        lanes = runner.lanes(cells, problems)
        if words := progress.continuing(ledger.found(study.folder, "attempt"), lanes):
            phases.note(words)
        with phase(progress.starting(settings.count(planned.protocol.generation.workers))) as tell:
            report = progress.reporter(
                sum(map(len, problems.values())) * len(planned.protocol.models),
                lanes,
                lambda at: tell(phases.At(*at)),
            )
            runner.run(
                study,
                planned.protocol,
                cells,
                problems,
                phase="confirm",
                attempt=attempt,
                report=_checked_halfway(study, report),
                opened=opened,
                settings=settings,
            )
        with phase("hashing again before the seal"):
            refuse_drift(study, with_weights=True)
        with phase("sealing"):
            return seal.write(study.registration)


def _checked_halfway(study: Study, report: Callable[[Event], None]) -> Callable[[Event], None]:
    """Return `report` with a refusal of drift (weights left out) once half of the lanes are recorded."""
    checked = False

    def reported(event: Event) -> None:
        nonlocal checked
        report(event)
        if isinstance(event, Progress) and not checked and 2 * event.lanes >= event.all_lanes:
            checked = True
            with phase("hashing sources and packages half-way"):
                refuse_drift(study, with_weights=False)

    return reported


def _opened(planned: Planned, held_out: HeldOut, problems: Mapping[str, Sequence[str]]) -> Opened:
    """Build every held-out problem for every model, this once: they are compared here, and then run."""
    built: dict[tuple[str, str, str], Problem] = {}
    known = planned.tasks
    for model in planned.protocol.models:
        count = prompting.counter(load.tokenizer(model, planned.home))
        for task, ids in problems.items():
            own = known[task]
            built |= {(model, task, each): door.build(own, task, each, count, held_out) for each in ids}
    return Opened(held_out, held_out.key(), built)


def _refuse_seen(study: Study, planned: Planned, opened: Opened) -> None:
    """Raise BadInput for a held-out problem with a prompt that its model was probed with, or that statistics
    of its model were measured on: by the prompt's digest, whatever its id.
    """
    probed: dict[str, dict[str, str]] = defaultdict(dict)  # problems, by model and digest of the prompt
    for record in study.registration.probed:
        body = record["body"]
        probed[body["cell"]["model"]][body["prompt"]] = body["problem"]
    query = {task.name: task.query for task in planned.protocol.tasks}
    asked = dict.fromkeys(planned.protocol.asks(arm.name) for arm in planned.protocol.arms)
    for model in planned.protocol.models:
        used = frozenset[str]().union(*map(calibration.prompts, planned.measured(model).values()))
        if not used and not probed[model]:
            continue
        tokenizer = load.tokenizer(model, planned.home)
        own = {(task, each): built for (of, task, each), built in opened.problems.items() if of == model}
        for (task, problem), built in own.items():
            if prompting.digest(*prompting.render(built, tokenizer, "inside")) in used:
                raise BadInput(
                    f"problem {problem!r}: statistics of {model} were measured on its prompt; "
                    "calibrate on other problems and register anew"
                )
            for asks in asked:
                fed = prompting.digest(*prompting.render(built, tokenizer, query[task], asks))
                if fed in probed[model]:
                    raise BadInput(
                        f"problem {problem!r}: {model} was probed with its prompt, as "
                        f"{probed[model][fed]!r}; register anew on other problems"
                    )
