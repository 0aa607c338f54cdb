"""What invariants check of lanes that were fed the full cache's text: loaded by studies with an outcome alone."""

from protocol.evidence.invariants.invariant import Violations
from protocol.evidence.invariants.recorded_lanes import Lane, Unit, group_by_problem
from protocol.formats.record_fields import format_agreement

MAX_DIVERGENCE = 1_000_000_000  # millionths of a nat


def find_divergence_fault(lane: Lane) -> str:
    """Return what is wrong with the divergence of a lane, as "divergence" says; "" if nothing is."""
    body = lane.body
    is_expected = not lane.is_full and body["state"] == "ok"
    if ("divergence" in body) != is_expected:
        return f"divergence {'is missing' if is_expected else 'is present'} in the state {body['state']!r}"
    if not is_expected:
        return ""
    agrees, nats = body["divergence"]["agrees"], body["divergence"]["nats"]
    positions = body["tokens"] + (body["stop"] == "eos")
    if not len(agrees) == len(nats) == positions:
        return f"divergence has {len(agrees)} and {len(nats)} positions, but its text has {positions}"
    if max(nats) > MAX_DIVERGENCE:
        return f"divergence.nats has {max(nats)}, above {MAX_DIVERGENCE}"
    if body.get("score") != (share := format_agreement(agrees)):
        return f"score is {body.get('score')}, but divergence.agrees gives {share}"
    return ""


def list_other_texts(unit: Unit) -> Violations:
    """Yield the lanes whose text is not that of the full cache of their problem and seed, as "one text" says."""
    for lanes in group_by_problem(unit):
        leaders = {lane.cell.seed: lane for lane in lanes if lane.is_full}
        for lane in lanes:
            if lane.body["state"] != "ok" or (leader := leaders.get(lane.cell.seed)) is None:
                continue  # interrupted before the full cache was recorded
            for name in ("state", "text", "tokens", "stop"):
                if (value := lane.body[name]) != leader.body[name]:
                    yield lane, f"{name} is {value!r}, but {leader.body[name]!r} in the full cache's lane"
