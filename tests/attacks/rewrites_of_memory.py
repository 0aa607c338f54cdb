"""What lanes held is made to be less or more, and counted and judged as if it had been so."""

from rewrite_cases import named
from rewrites_of_records import unmeasured

SAID = ("text", "answer", "grade", "grade_reason")


@named("A2", "sense", "room")
def bytes_are_halved_in_the_trajectory_too(rewrite):
    """It needed half the memory at every step."""
    for lane in rewrite.of("crystal"):
        lane.trajectory["allocated"] = [each // 2 for each in lane.trajectory["allocated"]]
        lane.body["cache"]["mean_bytes"] //= 2
        lane.body["cache"]["peak_bytes"] //= 2


@named("A2", "sense", "room")
def bytes_are_halved_where_no_full_cache_ran(rewrite):
    """It needed half the memory, and nothing tells how much a slot takes."""
    for lane in rewrite.of("full") + rewrite.of("full", "probe"):
        unmeasured(lane, "failed", "out of memory")
    bytes_are_halved_in_the_trajectory_too.edit(rewrite)


@named("A2", "sense", "growth")
def slots_held_are_halved_everywhere(rewrite):
    """crystal held half of what the comparators held."""
    for lane in rewrite.of("crystal"):
        lane.trajectory["held"] = [each // 8 * 4 for each in lane.trajectory["held"]]
        _summarised(lane)


def _summarised(lane):
    """`cache` as the trajectory gives it."""
    held, heads = lane.trajectory["held"], lane.trajectory["heads"]

    def slots(total, moments):
        micro = (2 * total * 10**6 + heads * moments) // (2 * heads * moments)
        return f"{micro // 10**6}.{micro % 10**6:06d}"

    lane.body["cache"] |= {
        "mean": slots(sum(held), len(held)),
        "peak": slots(max(held), 1),
        "prefill_end": slots(held[0], 1),
    }


@named("A2", "sense", "heads")
def the_model_had_twice_the_heads(rewrite):
    """Each head held half as much."""
    for lane in rewrite.of("crystal"):
        lane.trajectory["heads"] *= 2
        _summarised(lane)


@named("A2", "sense", "moments")
def a_trajectory_is_shorter_than_its_text(rewrite):
    """It had dropped what it held at the end."""
    for lane in rewrite.of("crystal"):
        lane.trajectory["held"], lane.trajectory["allocated"] = (
            lane.trajectory[name][:5] for name in ("held", "allocated")
        )
        _summarised(lane)


@named("A2", "sense", "growth")
def the_full_cache_is_relabelled_as_the_subject(rewrite):
    """crystal does whatever the full cache does, at 0.8 of its memory."""
    for lane, full in rewrite.pairs("crystal", "full"):
        lane.body |= {name: full.body[name] for name in (*SAID, "tokens", "stop", "cache")}
        lane.trajectory = full.trajectory


@named("A2", "sense", "growth")
def an_event_is_dropped(rewrite):
    """Nothing was evicted from crystal, and it held what the full cache held."""
    for lane in rewrite.of("crystal"):
        lane.body["cache"] |= {"events": [], "granted": []}


@named("A2", "sense", "left")
def an_event_leaves_more_than_its_grant(rewrite):
    """crystal held what it was granted, which was more."""
    for lane in rewrite.of("crystal"):
        heads = lane.trajectory["heads"]
        lane.trajectory["held"] = [each + 8 * heads for each in lane.trajectory["held"]]
        lane.body["cache"]["events"][0][2] += 8 * heads
        _summarised(lane)
