"""Run a locked protocol on its development problems; with a sweep, select its winner."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

from analysis.output import phases
from analysis.output.phases import phase
from analysis.studies import arms, evicted
from protocol.acts import beforehand, development, select
from protocol.acts.locking import unedited
from protocol.acts.locking.same_kept import Alike, alike
from protocol.evidence.run import claim, ledger, probing
from protocol.evidence.run.records import Record
from protocol.locked.study import Study, refuse_drift
from protocol.plan import grid
from protocol.plan.design import AGAIN
from protocol.running import progress, runner
from protocol.running.executors import beforehand as executors
from protocol.running.executors.settings import LOCAL, Settings

__all__ = ["Probed", "probe", "run"]


class Probed(NamedTuple):
    rows: list[dict[str, Any]]  # from `summarize`
    selected: dict[str, Any] | None  # the content of a sweep's selection.json
    alike: list[Alike]
    gate: list[str]  # about models and tasks whose full cache would fail its gate
    kept: list[str]  # about arms that evicted nothing


def probe(study: Study, settings: Settings = LOCAL) -> Probed:
    """Run the lanes that have no record yet, unless a sweep has its selection; then select. settings: where
    it runs. Raises Drifted, and as `preflight.check_probe`, `verify_before_claim.refuse_edited_lock` and
    `select.select_winner` do.
    """
    beforehand.probe(study.registration)
    executors.refuse(settings, study.protocol.generation.device)
    with phase("hashing sources, packages and weights"):
        refuse_drift(study, with_weights=True)
    with phase("deriving the lock again"):
        unedited.refuse_edited(study, simulated=False)
    with claim.running(study.registration):
        if not beforehand.selected(study.registration):
            run(study, settings)
        with phase("selecting"):
            selected = select.select(study) if study.protocol.sweep else None
    with phase("counting the answers"):
        return _counted(study, selected)


def _counted(study: Study, selected: dict[str, Any] | None) -> Probed:
    recorded = study.registration.anew().probed
    bodies = [record["body"] for record in recorded]
    gate = development.warnings(study.protocol, bodies)
    kept = evicted.warnings(
        evicted.counted(bodies, study.registration.registered), arms.unlike(study.registration.lock.content)
    )
    return Probed(summary(recorded), selected, alike(recorded), gate, kept)


def run(study: Study, settings: Settings = LOCAL) -> None:
    probed = study.protocol.probed()
    attempt = probing.begin(study.registration)
    cells, problems = grid.cells(probed), study.development()
    lanes = runner.lanes(cells, problems)
    if words := progress.continuing(ledger.found(study.folder, "probe"), lanes):
        phases.note(words)
    with phase(progress.starting(settings.count(probed.generation.workers))) as tell:
        report = progress.reporter(
            sum(map(len, problems.values())) * len(probed.models), lanes, lambda at: tell(phases.At(*at))
        )
        runner.run(
            study, probed, cells, problems, phase="probe", attempt=attempt, report=report, settings=settings
        )
    probing.end(study.registration)


def summary(recorded: Iterable[Record]) -> list[dict[str, Any]]:
    """Return one row per (model, task, budget, arm): as `count_answers`, and for a repeated arm its
    discordance.
    """
    groups: dict[tuple[str, ...], dict[tuple[str, int], dict[str, Any]]] = defaultdict(dict)
    for record in recorded:
        body, cell = record["body"], record["body"]["cell"]
        place = (cell["model"], cell["task"], cell["budget"], cell["arm"])
        groups[place][body["problem"], cell["seed"]] = body
    rows = []
    for (model, task, budget, arm), bodies in sorted(groups.items()):
        row = {
            "model": model,
            "task": task,
            "budget": budget,
            "arm": arm,
            **development.counted(bodies.values()),
        }
        if arm.endswith(AGAIN):
            first = groups[model, task, budget, arm.removesuffix(AGAIN)]
            row["discordant"] = sum(first[key]["text"] != body["text"] for key, body in bodies.items())
        rows.append(row)
    return rows
