"""Before a claim and a probe: derive the lock again and compare all of it, so that no edited lock is run.

Runs in the locked tree, in the locked environment, so that nothing may differ, even if somebody rewrote the ledger too.
Fields that describe the moment of locking cannot be derived later; they are compared with what can still be observed.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from protocol.evidence import selection
from protocol.evidence.audit import amendment
from protocol.evidence.external import git_history
from protocol.evidence.registration import PROTOCOL, Registration
from protocol.formats import files
from protocol.formats.citations import CITES
from protocol.formats.findings import CannotTell, NotRun
from protocol.formats.progress_display import phase
from protocol.formats.refusals import BadInput
from protocol.lock import closure, signing, version_1
from protocol.plan import checks, full_use
from protocol.preflight import (
    feasibility,
    frozen_problems,
    full_cache_use,
    lock_inputs,
    sibling_registrations,
)
from protocol.preflight.derive import derive_lock
from protocol.workspace import differences
from protocol.workspace.study import Study

CHECKED_ELSEWHERE = ("kind", "version", "release", "name", "sources", "bundle", "weights", "environment")
"""Taken from the lock: checked by the reader of documents and by `refuse_drift`. A folder may have been renamed."""
MOMENT_FIELDS = ("amends", "opened", "git", "signer")
"""Taken from the lock: checked by `find_contradictions` as far as possible."""


def refuse_edited_lock(study: Study, *, simulated: bool = True) -> None:
    """Raise Tampered with the paths that differ; BadInput where registering would refuse the protocol, and
    for a reproduction or replication whose parent is not in a sibling folder.

    simulated: also check what the rule can detect at the planned size, which arms retain the same slots and,
    where budgets are shares of it, the use of the full cache, for which every development problem is decoded.
    """
    expected = derive_again(study, simulated=simulated)
    differing = [*differences.diff_values(study.lock.content, expected), *find_contradictions(study)]
    differences.refuse_differences(differing, "; it was edited after it was locked; restore it")


def derive_again(study: Study, *, simulated: bool = True) -> dict[str, Any]:
    """Derive the lock with everything that can be read here. Raises as `refuse_edited_lock` does."""
    planned, registration, locked = study.planned, study.registration, study.lock.content
    parent = _require_parent(registration)
    reproduced = parent if registration.reproduces else None
    data = files.read(study.folder / PROTOCOL)
    if not version_1.is_replicated(registration.parent, closure.sha256_hex(data)):
        checks.require_gate(study.protocol, study.folder / PROTOCOL)
        checks.require_memory(study.protocol, study.folder / PROTOCOL)
        checks.require_floor(study.protocol, study.folder / PROTOCOL)
    items = frozen_problems.freeze_items(planned)
    batch: dict[str, Any] = {"lanes": study.lanes()}
    inputs = {name: locked[name] for name in (*CHECKED_ELSEWHERE, *MOMENT_FIELDS, full_use.FIELD, "checks")}
    inputs[CITES] = locked.get(CITES)
    inputs["parent"] = None
    if parent is not None:
        inputs["parent"] = selection.cite_parent(parent, is_fresh=reproduced is None)
    if reproduced is not None:
        batch["first_event"] = reproduced.lock.content["batch"]["first_event"]
    if simulated:
        inputs |= _simulate(study, items, reproduced)
    inputs |= {"batch": batch, **lock_inputs.read_inputs(planned, data, items)}
    expected = derive_lock(study.protocol, study.protocol.promises(), inputs)
    return expected | {"bundle": files.sha256(registration.bundle)}


def _simulate(study: Study, items: Mapping[str, Any], parent: Registration | None) -> dict[str, Any]:
    """Return the inputs that take seconds: the checks, and the use of the full cache."""
    measured: dict[str, Any] = {}
    if full_cache_use.share_budgets(study.protocol):
        parent_use = None if parent is None else parent.lock.content[full_use.FIELD]
        measured[full_use.FIELD] = parent_use or full_cache_use.measure_full_cache(study.planned, study.development())
    scored = frozen_problems.scored_tasks(items, study.planned)
    with phase("testing the rule on simulated studies again"):
        from protocol.preflight import rule_checks  # with scipy and pandas

        rule_results = rule_checks.check_rule(study.protocol, items, is_replication=parent is not None, scored=scored)
    with phase("checking again whether arms keep the same slots"):
        measured["checks"] = lock_inputs.read_checks(study.planned, items, rule_results)
    return measured


def find_contradictions(study: Study) -> Iterator[str]:
    """Yield one message for each field about the moment of locking that is contradicted here. Raises Tampered
    as the checks of amendment, commit and signature do.
    """
    with suppress(CannotTell, NotRun):
        amendment.verify(study.registration)
    with suppress(CannotTell, NotRun):
        git_history.check_commit(study.registration)
    with suppress(CannotTell, NotRun):
        signing.check(study.folder)
    yield from sibling_registrations.find_contradictions(study.registration)
    yield from _lane_faults(study)
    yield from sibling_registrations.check_opened(study.registration).faults


def _lane_faults(study: Study) -> Iterator[str]:
    """Check the numbers of lanes that nobody registered: they were chosen by the memory that was free."""
    max_lanes = feasibility.max_lanes(study.protocol)
    for model, count in study.lanes().items():
        if study.protocol.generation.lanes_per_batch is None and not 1 <= count <= max_lanes:
            yield f"batch.lanes.{model}: {count}, but must be from 1 to {max_lanes}, the number of lanes"


def _require_parent(study: Registration) -> Registration | None:
    """Return the parent, as `find_parent` does. Raises BadInput if a replication has none, because the checks
    that are relaxed for a replication depend on it.
    """
    parent = study.find_parent()
    if parent is None and (reference := study.parent) is not None:
        raise BadInput(
            f"{study.folder}: replicates {reference['name']}, whose lock {reference['lock'][:12]} is in no "
            "folder next to it; restore that folder"
        )
    return parent
