"""What of a lock follows from its protocol, the frozen manifests and the code: made once to be locked, and
again before a claim, so that nobody can edit between the two.
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
    """The fields of a lock that nobody chooses, but for `checks`; of `batch` the first event alone.

    data: protocol.toml; items: of `frozen.items`; sources: SHA-256 by path; first_event: as registering has
    it.
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
    """The field `checks` of a lock: what the rule can see (seen: of `rule_checks.checks`), what was read of
    golds, which answers have scores, and which arms are alike.
    """
    read = frozen.golds(items, planned.tasks) | frozen.scored(items, planned.tasks)
    return {**seen, **read, "same_kept": same_kept.same_kept(planned, items)}
