"""The audit of measured time and memory: they match the registration and satisfy the invariants."""

from protocol.evidence.findings import NotRun, Unfinished
from protocol.evidence.refusals import Tampered
from protocol.evidence.relations import of_costs
from protocol.evidence.run import costs
from protocol.evidence.run.costs import Measurement
from protocol.evidence.run.registration import Registration

__all__ = ["check"]

SHOWN = 3  # invariants that a failure names


def check(study: Registration, claimed: bool) -> str:
    """Return how many of the registered repetitions each machine measured.

    Raises Tampered for measurements that do not verify, break an invariant or were not registered, NotRun
    where nothing was measured, Unfinished while more can be measured.
    """
    if costs.registered(study.lock.content) is None:
        raise Tampered("time was measured, and none was registered")
    found = costs.read(study)
    attempts = costs.verify(study, found)
    due = costs.due(study.lock.content)
    for one in found:
        if wrong := list(of_costs.broken(study.lock.content, study.lock.digest, one, due)):
            also = f"; {len(wrong) - SHOWN} more relations" if len(wrong) > SHOWN else ""
            raise Tampered(f"{one.name}: {'; '.join(wrong[:SHOWN])}{also}")
    measured = [one for one in found if one.bodies]
    if not attempts or not measured:
        raise NotRun("registered, and not measured" + (" before the claim" if claimed else ""))
    said = "; ".join(_said(one, len(due)) for one in measured)
    if not claimed and any(len(one.bodies) < len(due) or one.torn for one in measured):
        raise Unfinished(f"{said}; run again: kv-prereg cost {study.folder}")
    return f"{said}; {len(of_costs.RELATIONS)} relations hold; no verdict depends on it"


def _said(one: Measurement, due: int) -> str:
    left = "" if len(one.bodies) == due else " (INCOMPLETE)"
    bad = sum(body["state"] != "ok" for body in one.bodies)
    without = f", {bad} of them without a time" if bad else ""
    return f"{len(one.bodies)} of {due} repetitions on {one.machine['host']}{left}{without}"
