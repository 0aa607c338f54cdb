"""The lock of a study that another harness runs, derived when it is locked, before its claim and by an audit."""

from collections.abc import Mapping
from typing import Any

from protocol import tasks
from protocol.evidence.registration import Registration
from protocol.lock import closure
from protocol.preflight import frozen_problems, rule_checks, sibling_registrations
from protocol.preflight.derive import derive_lock
from protocol.workspace import differences
from protocol.workspace.planned_study import PlannedStudy

NOT_RUN = "not run: another harness makes the outputs"


def derive_outside(
    planned: PlannedStudy, data: bytes, items: Mapping[str, Any], observed: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the content of the lock. data: protocol.toml; items: its problems, from `freeze_items`; observed: the
    inputs of `derive_lock` that describe the moment of locking. Raises BadInput for a rule that errs too often.
    """
    protocol = planned.protocol
    scored = frozen_problems.scored_tasks(items, planned)
    checks = {
        **rule_checks.check_rule(protocol, items, scored=scored),
        "golds": {},
        "scored": scored,
        "same_kept": {"pairs": [], "on": dict.fromkeys(protocol.models, NOT_RUN), "left_out": []},
    }
    inputs = {
        **observed,
        "protocol": {"sha256": closure.sha256_hex(data)},
        "items": items,
        "data": tasks.data_digests(planned.tasks),
        "checks": checks,
    }
    return derive_lock(protocol, {}, inputs)


def refuse_edited_lock(study: Registration, planned: PlannedStudy, data: bytes) -> None:
    """Derive the lock again and raise Tampered with the paths that differ; see `verify_before_claim`."""
    items = frozen_problems.freeze_items(planned)
    expected = derive_outside(planned, data, items, study.lock.content)
    differing = [
        *differences.diff_values(study.lock.content, expected),
        *sibling_registrations.find_contradictions(study),
        *sibling_registrations.check_opened(study).faults,
    ]
    differences.refuse_differences(differing, "; it was edited after it was locked; restore it")
