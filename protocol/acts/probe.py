"""Run a locked protocol on its development problems; with a sweep, select its winner."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

from analysis.judgement import arm_text, eviction_counts
from protocol.acts import development_results, preflight, select
from protocol.evidence import claim, ledger, probe_attempts
from protocol.evidence.records import Record
from protocol.formats import progress_display
from protocol.formats.progress_display import phase
from protocol.plan import grid
from protocol.plan.design import RERUN_SUFFIX
from protocol.preflight import verify_before_claim
from protocol.preflight.same_slots import AlikeArms, find_alike_arms
from protocol.run import progress, runner
from protocol.run.executors import preflight as executors
from protocol.run.executors.settings import LOCAL, Settings
from protocol.workspace.study import Study, refuse_drift

__all__ = ["ProbeResult", "probe", "run_probe"]


class ProbeResult(NamedTuple):
    rows: list[dict[str, Any]]  # from `summarize`
    selected: dict[str, Any] | None  # the content of a sweep's selection.json
    alike_arms: list[AlikeArms]
    gate_warnings: list[str]  # about models and tasks whose full cache would fail its gate
    unevicted_warnings: list[str]  # about arms that evicted nothing


def probe(study: Study, settings: Settings = LOCAL) -> ProbeResult:
    """Run the lanes that have no record yet, unless a sweep has its selection; then select. settings: where
    it runs. Raises Drifted, and as `preflight.check_probe`, `verify_before_claim.refuse_edited_lock` and
    `select.select_winner` do.
    """
    preflight.check_probe(study.registration)
    executors.refuse_unavailable(settings, study.protocol.generation.device)
    with phase("hashing sources, packages and weights"):
        refuse_drift(study, with_weights=True)
    with phase("deriving the lock again"):
        verify_before_claim.refuse_edited_lock(study, simulated=False)
    with claim.exclusive_run(study.registration):
        if not preflight.has_selection(study.registration):
            run_probe(study, settings)
        with phase("selecting"):
            selected = select.select_winner(study) if study.protocol.sweep else None
    with phase("counting the answers"):
        return _summarize_probe(study, selected)


def _summarize_probe(study: Study, selected: dict[str, Any] | None) -> ProbeResult:
    recorded = study.registration.reopen().probe_records
    bodies = [record["body"] for record in recorded]
    gate_warnings = development_results.gate_warnings(study.protocol, bodies)
    unevicted_warnings = eviction_counts.eviction_warnings(
        eviction_counts.count_arms(bodies, study.registration.protocol),
        arm_text.altered_arms(study.registration.lock.content),
    )
    return ProbeResult(summarize(recorded), selected, find_alike_arms(recorded), gate_warnings, unevicted_warnings)


def run_probe(study: Study, settings: Settings = LOCAL) -> None:
    probed = study.protocol.probe_design()
    attempt = probe_attempts.begin_attempt(study.registration)
    cells, problems = grid.cells(probed), study.development()
    lanes = runner.count_lanes(cells, problems)
    if message := progress.format_continuation(ledger.last_attempt_records(study.folder, "probe"), lanes):
        progress_display.note(message)
    with phase(progress.format_start(settings.count(probed.generation.workers))) as update:
        report = progress.make_reporter(
            sum(map(len, problems.values())) * len(probed.models),
            lanes,
            lambda progress_at: update(progress_display.Progress(*progress_at)),
        )
        runner.run_phase(
            study, probed, cells, problems, phase="probe", attempt=attempt, report=report, settings=settings
        )
    probe_attempts.end_attempt(study.registration)


def summarize(recorded: Iterable[Record]) -> list[dict[str, Any]]:
    """Return one row per (model, task, budget, arm): as `count_answers`, and for a repeated arm its
    discordance.
    """
    groups: dict[tuple[str, ...], dict[tuple[str, int], dict[str, Any]]] = defaultdict(dict)
    for record in recorded:
        body, cell = record["body"], record["body"]["cell"]
        cell_key = (cell["model"], cell["task"], cell["budget"], cell["arm"])
        groups[cell_key][body["problem"], cell["seed"]] = body
    rows = []
    for (model, task, budget, arm), bodies in sorted(groups.items()):
        row = {
            "model": model,
            "task": task,
            "budget": budget,
            "arm": arm,
            **development_results.count_answers(bodies.values()),
        }
        if arm.endswith(RERUN_SUFFIX):
            first = groups[model, task, budget, arm.removesuffix(RERUN_SUFFIX)]
            row["discordant"] = sum(first[key]["text"] != body["text"] for key, body in bodies.items())
        rows.append(row)
    return rows
