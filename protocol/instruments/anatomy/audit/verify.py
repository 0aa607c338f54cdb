"""The audit of anatomy traces: they match the registration, are in order and satisfy the invariants."""

from collections import Counter

from protocol.evidence.audit import inventory
from protocol.evidence.invariants.invariant import describe_violations
from protocol.evidence.registration import Registration
from protocol.formats import files
from protocol.formats.findings import NotRun, Unfinished
from protocol.formats.refusals import Tampered
from protocol.instruments.anatomy import invariants, trace_file
from protocol.instruments.anatomy.fields import STATES
from protocol.instruments.anatomy.trace_file import ANATOMY


def check(study: Registration, is_claimed: bool, has_ended: bool) -> str:
    """Return how many traces ended in each state.

    Raises Tampered for traces that do not verify or break an invariant, NotRun where nothing was
    labelled, Unfinished while more traces can be labelled.
    """
    traces, expected = trace_file.read_traces(study), trace_file.expected_traces(study.lock.content)
    attempts = trace_file.verify(study, traces)
    context = invariants.AnatomyContext(study.lock.content, study.lock.digest, traces, expected)
    if wrong := invariants.find_violations(context, lambda body: trace_file.read_values(study, body)):
        raise Tampered(describe_violations(wrong))
    if not attempts or not traces.bodies:
        raise NotRun("registered, but no trace was labelled" + (" before the claim" if is_claimed else ""))
    is_judged = _is_judged(study)
    uncited = [path for path in trace_file.uncited_files(study, traces) if not inventory.is_leftover(path)]
    if is_judged and uncited:
        raise Tampered(f"{ANATOMY}/{trace_file.VALUES}/{uncited[0].name}: no line cites it")
    if is_judged and traces.torn:
        raise Tampered(f"{trace_file.TRACES}: ends in {traces.torn} bytes of a torn line")
    states = Counter(body["state"] for body in traces.bodies)
    counts_text = ", ".join(f"{states[state]} {state}" for state in STATES if states[state])
    summary = f"{len(traces.bodies)} of {len(expected)} traces{'' if is_judged else ' (INCOMPLETE)'}: {counts_text}"
    if not is_judged and not is_claimed and not has_ended:
        raise Unfinished(f"{summary}; run again: kv-prereg anatomy {study.folder}")
    return f"{summary}; {len(invariants.INVARIANTS)} relations are satisfied; no verdict on a policy depends on it"


def _is_judged(study: Registration) -> bool:
    """Return whether the anatomy has its verdict. Raises Tampered for a document that only the ledger has."""
    events = {entry.event for entry in study.entries}
    for event, name in trace_file.CITED.items():
        if event in events and not files.exists(study.folder / ANATOMY / name):
            raise Tampered(f"{ANATOMY}/{name}: missing, although the ledger has a line for it")
    return trace_file.VERDICT_EVENT in events
