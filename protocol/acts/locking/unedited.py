"""Before a claim and a probe: derive the lock again and compare all of it, so that no edited lock is run.

Runs in the locked tree, in the locked environment, so that nothing may differ, even if somebody rewrote the
ledger too. Fields that describe the moment of locking cannot be derived later; they are compared with what
can still be observed.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from analysis.output.phases import phase
from protocol.acts.locking import beside, derived, fitting, frozen, measured_use, rule_checks
from protocol.evidence.audit import amendment
from protocol.evidence.bytes import canonical, files
from protocol.evidence.findings import CannotTell, NotRun
from protocol.evidence.lock import lock, signing
from protocol.evidence.outside import history
from protocol.evidence.refusals import BadInput
from protocol.evidence.run import ledger, selection
from protocol.evidence.run.registration import PROTOCOL, Registration
from protocol.locked import differences
from protocol.locked.study import Study
from protocol.plan import checks, full_use

__all__ = ["derived_again", "moment", "refuse_edited"]

ELSEWHERE = {"kind", "version", "name", "sources", "weights", "environment"}
"""Checked by the reader of documents and by `refuse_drift`. A folder may have been renamed."""
MOMENT = ("amends", "opened", "git", "signer")
"""Checked by `find_contradictions` as far as possible; every lock has these fields."""


def refuse_edited(study: Study, *, simulated: bool = True) -> None:
    """Raise Tampered with the paths that differ; BadInput where registering would refuse the protocol, and
    for a replication whose parent is not in a sibling folder.

    simulated: also check what the rule can detect at the planned size, which arms retain the same slots and,
    where budgets are shares of it, the use of the full cache, for which every development problem is decoded.
    """
    left = ELSEWHERE if simulated else ELSEWHERE | {"checks", full_use.FIELD}
    locked = {name: value for name, value in study.lock.content.items() if name not in left}
    due = canonical.loads(canonical.dumps(derived_again(study, simulated=simulated)), lock.NAME)
    wrong = [*differences.between(locked, due), *moment(study)]
    differences.refuse(wrong, "; it was edited after it was locked, so restore it")


def derived_again(study: Study, *, simulated: bool = True) -> dict[str, Any]:
    """Derive the lock, without the fields in `CHECKED_ELSEWHERE`; those in `MOMENT_FIELDS` are copied. Raises
    as `refuse_edited_lock` does.
    """
    planned, registration, locked = study.planned, study.registration, study.lock.content
    parent = _parent(registration)
    if not beside.gateless(registration):
        checks.require_gate(study.protocol, study.folder / PROTOCOL)
        checks.require_memory(study.protocol, study.folder / PROTOCOL)
    items = frozen.items(planned)
    first = None if parent is None else int(parent.lock.content.get("batch", {}).get("first_event", 0))
    data = files.read(study.folder / PROTOCOL)
    due = derived.follows(planned, data, items, locked["sources"], first)
    due["batch"]["lanes"] = study.lanes()
    if simulated and measured_use.shares(study.protocol):
        again = None if parent is None else parent.lock.content.get(full_use.FIELD)
        due[full_use.FIELD] = again or measured_use.measured(planned, study.development())
    if simulated:
        scored = frozen.scored(items, planned.tasks).get("scored", [])
        with phase("trying the rule on made-up studies again"):
            seen = rule_checks.checks(study.protocol, items, again=parent is not None, scored=scored)
        with phase("looking again for arms that keep the same slots"):
            due["checks"] = derived.checks(planned, items, seen)
    due["parent"] = None
    if parent is not None:
        due["parent"] = {"name": parent.name, "lock": parent.lock.digest, **selection.digest(parent)}
    due["ledger"] = ledger.at([])
    due["bundle"] = files.sha256(registration.bundle)
    return due | {name: locked.get(name, f"what {name} was") for name in MOMENT}


def moment(study: Study) -> Iterator[str]:
    """Yield one message for each field about the moment of locking that is contradicted here. Raises Tampered
    as the checks of amendment, commit and signature do.
    """
    with suppress(CannotTell, NotRun):
        amendment.verify(study.registration)
    with suppress(CannotTell, NotRun):
        history.check_commit(study.registration)
    with suppress(CannotTell, NotRun):
        signing.check(study.folder)
    yield from beside.contradictions(study.registration)
    yield from _lanes(study)
    yield from beside.opened(study.registration)


def _lanes(study: Study) -> Iterator[str]:
    """Check the numbers of lanes; those that nobody registered were chosen by the memory that was free."""
    generation, lanes = study.protocol.generation, study.lanes()
    if lanes.keys() != set(study.protocol.models):
        yield f"batch.lanes: is about {differences.shown(sorted(lanes))}, and not about the models"
    most = fitting.most_lanes(study.protocol)
    for model, count in lanes.items():
        if generation.lanes_per_batch is not None and count != generation.lanes_per_batch:
            yield f"batch.lanes.{model}: {count}, it has to be {generation.lanes_per_batch}, as registered"
        elif generation.lanes_per_batch is None and not 1 <= count <= most:
            yield f"batch.lanes.{model}: {count}, it has to be from 1 to the {most} that there are"


def _parent(study: Registration) -> Registration | None:
    """Return the parent, as `find_parent` does. Raises BadInput if a replication has none, because the checks
    that are relaxed for a replication depend on it.
    """
    found = beside.parent(study)
    if found is None and (named := study.parent) is not None:
        raise BadInput(
            f"{study.folder}: replicates {named['name']}, of which no folder beside has the lock "
            f"{named['lock'][:12]}; bring it back"
        )
    return found
