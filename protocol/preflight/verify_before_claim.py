"""Before a claim and a probe: derive the lock again and compare all of it, so that no edited lock is run.

Runs in the locked tree, in the locked environment, so that nothing may differ, even if somebody rewrote the
ledger too. Fields that describe the moment of locking cannot be derived later; they are compared with what
can still be observed.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from protocol.evidence import ledger, selection
from protocol.evidence.audit import amendment
from protocol.evidence.external import git_history
from protocol.evidence.registration import PROTOCOL, Registration
from protocol.formats import canonical, files
from protocol.formats.findings import CannotTell, NotRun
from protocol.formats.progress_display import phase
from protocol.formats.refusals import BadInput
from protocol.lock import frozen_problems, lock, sibling_registrations, signing
from protocol.plan import checks, full_use
from protocol.preflight import feasibility, full_cache_use, lock_content, rule_checks
from protocol.workspace import differences
from protocol.workspace.study import Study

__all__ = ["derive_lock", "find_contradictions", "refuse_edited_lock"]

CHECKED_ELSEWHERE = {"kind", "version", "name", "sources", "weights", "environment"}
"""Checked by the reader of documents and by `refuse_drift`. A folder may have been renamed."""
MOMENT_FIELDS = ("amends", "opened", "git", "signer")
"""Checked by `find_contradictions` as far as possible; every lock has these fields."""


def refuse_edited_lock(study: Study, *, simulated: bool = True) -> None:
    """Raise Tampered with the paths that differ; BadInput where registering would refuse the protocol, and
    for a replication whose parent is not in a sibling folder.

    simulated: also check what the rule can detect at the planned size, which arms retain the same slots and,
    where budgets are shares of it, the use of the full cache, for which every development problem is decoded.
    """
    skipped = CHECKED_ELSEWHERE if simulated else CHECKED_ELSEWHERE | {"checks", full_use.FIELD}
    locked = {name: value for name, value in study.lock.content.items() if name not in skipped}
    expected = canonical.loads(canonical.dumps(derive_lock(study, simulated=simulated)), lock.NAME)
    differing = [*differences.diff_values(locked, expected), *find_contradictions(study)]
    differences.refuse_differences(differing, "; it was edited after it was locked, so restore it")


def derive_lock(study: Study, *, simulated: bool = True) -> dict[str, Any]:
    """Derive the lock, without the fields in `CHECKED_ELSEWHERE`; those in `MOMENT_FIELDS` are copied. Raises
    as `refuse_edited_lock` does.
    """
    planned, registration, locked = study.planned, study.registration, study.lock.content
    parent = _require_parent(registration)
    if not sibling_registrations.predates_gates(registration):
        checks.require_gate(study.protocol, study.folder / PROTOCOL)
        checks.require_memory(study.protocol, study.folder / PROTOCOL)
    items = frozen_problems.freeze_items(planned)
    first_event = None if parent is None else int(parent.lock.content.get("batch", {}).get("first_event", 0))
    data = files.read(study.folder / PROTOCOL)
    content = lock_content.derive_content(planned, data, items, locked["sources"], first_event)
    content["batch"]["lanes"] = study.lanes()
    if simulated and full_cache_use.share_budgets(study.protocol):
        parent_use = None if parent is None else parent.lock.content.get(full_use.FIELD)
        content[full_use.FIELD] = parent_use or full_cache_use.measure_full_cache(planned, study.development())
    if simulated:
        scored = frozen_problems.scored_tasks(items, planned.tasks).get("scored", [])
        with phase("trying the rule on made-up studies again"):
            rule_results = rule_checks.check_rule(
                study.protocol, items, is_replication=parent is not None, scored=scored
            )
        with phase("looking again for arms that keep the same slots"):
            content["checks"] = lock_content.derive_checks(planned, items, rule_results)
    content["parent"] = None
    if parent is not None:
        content["parent"] = {"name": parent.name, "lock": parent.lock.digest, **selection.claim_fields(parent)}
    content["ledger"] = ledger.head_of([])
    content["bundle"] = files.sha256(registration.bundle)
    return content | {name: locked.get(name, f"what {name} was") for name in MOMENT_FIELDS}


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
    yield from sibling_registrations.find_opened_faults(study.registration)


def _lane_faults(study: Study) -> Iterator[str]:
    """Check the numbers of lanes; those that nobody registered were chosen by the memory that was free."""
    generation, lanes = study.protocol.generation, study.lanes()
    if lanes.keys() != set(study.protocol.models):
        yield f"batch.lanes: is about {differences.format_value(sorted(lanes))}, and not about the models"
    max_lanes = feasibility.max_lanes(study.protocol)
    for model, count in lanes.items():
        if generation.lanes_per_batch is not None and count != generation.lanes_per_batch:
            yield f"batch.lanes.{model}: {count}, it has to be {generation.lanes_per_batch}, as registered"
        elif generation.lanes_per_batch is None and not 1 <= count <= max_lanes:
            yield f"batch.lanes.{model}: {count}, it has to be from 1 to the {max_lanes} that there are"


def _require_parent(study: Registration) -> Registration | None:
    """Return the parent, as `find_parent` does. Raises BadInput if a replication has none, because the checks
    that are relaxed for a replication depend on it.
    """
    parent = sibling_registrations.find_parent(study)
    if parent is None and (reference := study.parent) is not None:
        raise BadInput(
            f"{study.folder}: replicates {reference['name']}, of which no folder beside has the lock "
            f"{reference['lock'][:12]}; bring it back"
        )
    return parent
