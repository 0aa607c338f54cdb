"""The audit of anatomy traces: they match the registration, are in order and satisfy the invariants."""

from collections import Counter

from protocol.evidence.audit import inventory
from protocol.evidence.bytes import files
from protocol.evidence.findings import NotRun, Unfinished
from protocol.evidence.refusals import Tampered
from protocol.evidence.relations import of_anatomies
from protocol.evidence.run import anatomies
from protocol.evidence.run.anatomies import CHOSEN, VERDICT
from protocol.evidence.run.anatomy_fields import STATES
from protocol.evidence.run.registration import ANATOMY, Registration

__all__ = ["check"]

SHOWN = 3  # invariants that a failure names


def check(study: Registration, claimed: bool, ended: bool) -> str:
    """Return how many traces ended in each state.

    Raises Tampered for traces that do not verify, break an invariant or were not registered, NotRun where
    nothing was labelled, Unfinished while more traces can be labelled.
    """
    if anatomies.registered(study.lock.content) is None:
        raise Tampered("traces were labelled, and no [anatomy] was registered")
    found, due = anatomies.read(study), anatomies.due(study.lock.content)
    attempts = anatomies.verify(study, found)
    asked = of_anatomies.Asked(study.lock.content, study.lock.digest, found, due)
    if wrong := list(of_anatomies.broken(asked, lambda body: anatomies.values(study, body))):
        also = f"; {len(wrong) - SHOWN} more relations" if len(wrong) > SHOWN else ""
        raise Tampered(f"{'; '.join(wrong[:SHOWN])}{also}")
    if not attempts or not found.bodies:
        raise NotRun("registered, and not labelled" + (" before the claim" if claimed else ""))
    done = _done(study)
    extra = [path for path in anatomies.orphans(study, found) if not inventory.of_a_system(path.name)]
    if done and extra:
        raise Tampered(f"{ANATOMY}/{anatomies.VALUES}/{extra[0].name}: no line cites it")
    if done and found.torn:
        raise Tampered(f"{anatomies.TRACES}: ends in {found.torn} bytes of a torn line")
    states = Counter(body["state"] for body in found.bodies)
    counted = ", ".join(f"{states[state]} {state}" for state in STATES if states[state])
    said = f"{len(found.bodies)} of {len(due)} traces{'' if done else ' (INCOMPLETE)'}: {counted}"
    if not done and not claimed and not ended:
        raise Unfinished(f"{said}; run again: kv-prereg anatomy {study.folder}")
    return f"{said}; {len(of_anatomies.RELATIONS)} relations hold; no verdict on a policy depends on it"


def _done(study: Registration) -> bool:
    """Return whether the anatomy has its verdict. Raises Tampered for a document that only the ledger has."""
    events = {entry.event for entry in study.entries}
    for name, event in ((CHOSEN, "anatomy-chosen"), (VERDICT, "anatomy-judged")):
        if event in events and not files.there(study.folder / ANATOMY / name):
            raise Tampered(f"{ANATOMY}/{name}: missing, and the ledger has its line")
    return "anatomy-judged" in events
