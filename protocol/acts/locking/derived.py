"""The content of a lock that follows from its protocol, the frozen manifests and the code. It is derived when
the lock is written and again before a claim, so that nobody can edit it in between.
"""

from collections.abc import Mapping
from typing import Any

from analysis.rules import RULES
from policies.structure import structure
from protocol import tasks
from protocol.acts.locking import frozen, layered, same_kept, sized
from protocol.evidence.lock import closure
from protocol.locked.planned import Planned
from protocol.plan import grid

__all__ = ["checks", "follows"]


def follows(
    planned: Planned,
    data: bytes,
    items: Mapping[str, Any],
    sources: Mapping[str, str],
    first_event: int | None = None,
) -> dict[str, Any]:
    """Return the derived fields of a lock without `checks`; of `batch` the first event alone.

    data: protocol.toml; items: from `freeze_items`; sources: SHA-256 by path; first_event: the parent's, for
    a replication.
    """
    protocol, known = planned.protocol, planned.tasks
    asked = {arm.name: asks for arm in protocol.arms if (asks := protocol.asks(arm.name))}
    rule = RULES[protocol.decision.rule].source
    policies = {arm.name: structure(protocol.policy(arm.name)) for arm in protocol.arms}
    return {
        "protocol": {"sha256": closure.digest_of(data), "content": protocol.content()},
        "grid": [list(cell) for cell in grid.cells(protocol)],
        "policies": policies,
        **({"asked": asked} if asked else {}),
        **sized.field(planned),
        **layered.field(planned),
        "items": items,
        "batch": {"first_event": protocol.generation.waits if first_event is None else first_event},
        "data": tasks.data(known),
        "rule": {"name": protocol.decision.rule, "source": rule, "sha256": sources[rule]},
    }


def checks(planned: Planned, items: Mapping[str, Any], seen: Mapping[str, Any]) -> dict[str, Any]:
    """Return the field `checks` of a lock: what the rule can detect (rule_results: from `check_rule`), the
    counts of golds, the tasks with scores, and the arms with the same slots.
    """
    read = frozen.golds(items, planned.tasks) | frozen.scored(items, planned.tasks)
    return {**seen, **read, "same_kept": same_kept.same_kept(planned, items)}
