"""Select the subject of a sweep again with the auditor's own analysis."""

from typing import Any

from analysis import selection as rule
from analysis.judgement import study_table
from protocol.evidence import selection
from protocol.evidence.registration import SELECTION, Registration
from protocol.formats.findings import NotRun
from protocol.recompute import verify_judgement


def check_selection(study: Registration) -> str:
    """Check that the installed analysis gives the selection in a sweep's selection.json.

    Raises as `check` does, and NotRun for a selection that was taken from a parent, whose own audit checks it.
    """
    if not study.has_sweep or not study.has(SELECTION):
        raise NotRun
    if selection.inherited_digest(study):
        raise NotRun("the selection equals that of the study that this one replicates")
    recorded = study.selection.content["selected"]

    def select() -> dict[str, Any]:
        verify_judgement.refuse_costly(study, _count_probed_lanes(study), study.probe_records)
        locked = study.lock
        probed_study = study_table.build_probe(
            study.folder, locked.digest, locked.content, verify_judgement.name_records(study.probe_records)
        )
        return verify_judgement.through_json(rule.select_from_study(study.folder, probed_study))

    computed, comparison = verify_judgement.judge_again(study, SELECTION, recorded, select)
    return f"{computed['winner']}, {comparison}"


def _count_probed_lanes(study: Registration) -> int:
    content, items = study.protocol, study.lock.content["items"]
    sweep, problems = content["sweep"], sum(len(items[task["name"]]["dev"]) for task in content["tasks"])
    arms = len(sweep["candidates"]) + 2  # and the baseline twice
    return len(content["models"]) * len(content["budgets"]) * len(sweep["seeds"]) * arms * problems
