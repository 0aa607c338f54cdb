"""Invariants between a record's account of its memory and the trajectory that it cites."""

from collections.abc import Iterator, Sequence
from decimal import Decimal

from protocol.evidence.relations.planned_lanes import QUANTUM, Plan, Stored
from protocol.evidence.relations.recorded_lanes import Lane
from protocol.evidence.relations.relation import Measure, Relation

__all__ = ["RELATIONS", "measure"]

MOST = 1 << 62  # stands for no upper bound
POSITION = 8  # bytes of a slot's position, which a lane that evicts while decoding stores


def measure(plan: Plan, lanes: Sequence[Lane], before: Measure | None) -> Measure | None:
    """Narrow the bounds of `earlier` lanes by these lanes of the same model, which all have trajectories;
    None if there are no lanes at all. A lane that is inconsistent with the bounds so far is ignored, and so
    is one for which the lock gives the bytes of a slot.
    """
    if not lanes:
        return before
    found = before or Measure(lanes[0].trajectory.heads, 1, MOST)
    untold = (lane for lane in lanes if _stored(plan, lane) is None)
    for lane in sorted(untold, key=lambda lane: not lane.full):  # full-cache lanes first: they are exact
        for _, own, low, high in _rooms(plan, lane):
            least, most = _sizes(found, own, low, high)
            if least <= most:
                found = found._replace(least=least, most=most)
    return found


def moments(plan: Plan, lane: Lane, measure: Measure) -> str:
    count, planned = len(lane.trajectory.held), 1 + lane.outside + lane.fed
    if count == planned:
        return ""
    told = f"{lane.body['tokens']} tokens that end by {lane.body['stop']}"
    return f"trajectory.held has {count} moments, {told} have {planned}"


def heads(plan: Plan, lane: Lane, measure: Measure) -> str:
    own, stored = lane.trajectory.heads, _stored(plan, lane)
    if stored is not None and own != stored.heads:
        return f"trajectory.heads is {own}, the lock's {stored.heads}"
    return "" if own == measure.heads else f"trajectory.heads is {own}, of other lanes {measure.heads}"


def summary(plan: Plan, lane: Lane, measure: Measure) -> str:
    held, allocated, heads = lane.trajectory
    told = {
        "mean": _six(sum(held), len(held) * heads),
        "peak": _six(max(held), heads),
        "prefill_end": _six(held[0], heads),
        "mean_bytes": sum(allocated) // len(allocated),
        "peak_bytes": max(allocated),
    }
    wrong = (name for name, value in told.items() if lane.cache[name] != value)
    said = (f"cache.{name} is {lane.cache[name]}, its trajectory gives {told[name]}" for name in wrong)
    return next(said, "")


def growth(plan: Plan, lane: Lane, measure: Measure) -> str:
    held, _, heads = lane.trajectory
    prompt = heads * lane.body["prompt_tokens"]
    if lane.full != (not lane.events):
        return f"cache.events has {len(lane.events)}, and its budget is {lane.cell.budget}"
    first = lane.events[0] if lane.events else [0, prompt, prompt]
    if first[:2] != [0, prompt]:
        return f"cache.events begins with {first}; the prompt fills {prompt} slots at step 0"
    fed = len(held) - 1 - lane.outside
    expected, level, at = [first[2]], first[2], 0
    if lane.outside:
        level += heads * lane.query
        expected.append(level)
    for step, before, after in lane.events[1:]:
        again = step == at == 0 and lane.outside  # an eviction right after the question
        if not (at < step <= fed or again):
            return f"cache.events has one at step {step}, of {fed} steps, after that of step {at}"
        expected += range(level + heads, level + heads * (step - at) + 1, heads)
        if before != (level := expected[-1]):
            return f"cache.events has {before} slots before step {step}, which finds {level}"
        expected[-1], level, at = after, after, step
    expected += range(level + heads, level + heads * (fed - at) + 1, heads)
    if expected == held:
        return ""
    moment = next((i for i, (a, b) in enumerate(zip(expected, held, strict=False)) if a != b), len(held))
    return f"trajectory.held is {_at(held, moment)} at moment {moment}, not {_at(expected, moment)}"


def due(plan: Plan, lane: Lane, measure: Measure) -> str:
    late = [step for step, *_ in lane.events[1:] if lane.settled is not None and step >= lane.settled]
    if late:
        return f"cache.events has one at step {late[0]}; its thinking ended at step {lane.settled}"
    if lane.full or not lane.events or (not lane.arm.plain and lane.arm.interval != 0):
        return ""
    later = [event[0] for event in lane.events[1:]]
    wanted = list(_due(plan, lane)) if lane.arm.interval else []
    if later == wanted:
        return ""
    place = next((i for i, (a, b) in enumerate(zip(later, wanted, strict=False)) if a != b), None)
    place = min(len(later), len(wanted)) if place is None else place
    return f"cache.events[{place + 1}] is at step {_at(later, place)}, due at {_at(wanted, place)}"


def granted(plan: Plan, lane: Lane, measure: Measure) -> str:
    given = lane.cache.get("granted")
    if given is None:
        return "cache.granted is missing; the lock is of 2026-11-22 or later" if plan.granting else ""
    if len(given) != len(lane.events):
        return f"cache.granted has {len(given)} entries for {len(lane.events)} events"
    if lane.arm.plain and set(given) - {lane.body["slots"]}:
        return f"cache.granted is {given[:3]}, its budget {lane.body['slots']}"
    return ""


def left(plan: Plan, lane: Lane, measure: Measure) -> str:
    heads, arm, slots = lane.trajectory.heads, lane.arm, lane.body["slots"] or 0
    given = lane.cache.get("granted", [slots] * len(lane.events) if arm.plain else [])
    for (step, before, after), grant in zip(lane.events, given, strict=False):
        most = grant * heads
        if arm.press:
            right = 0 < after <= before
        elif before <= most:
            right = after == before or (arm.bounds and after < before)
        else:
            right = after < before and not (arm.most and after > most) and not (arm.exact and after != most)
        if not right:
            return f"cache.events leaves {after} of {before} slots at step {step}, granted {most}"
    return ""


def room(plan: Plan, lane: Lane, measure: Measure) -> str:
    if (stored := _stored(plan, lane)) is not None:
        measure = measure._replace(least=stored.bytes, most=stored.bytes)
    for start, own, low, high in _rooms(plan, lane):
        least, most = _sizes(measure, own, low, high)
        whole = measure.least != measure.most or not max(own) % measure.least
        if len(own) > 1 or not whole or least > most:
            said = ", ".join(map(str, sorted(own)[:3]))
            bounds = f"{low * measure.least} to {high * measure.most}"
            return f"trajectory.allocated is {said} from moment {start}, not one of {bounds}"
    return ""


def windows(plan: Plan, lane: Lane, measure: Measure) -> str:
    model, size = lane.body["cell"]["model"], lane.cache.get("window_bytes", 0)
    if (kept := plan.windows.get(model)) is None:
        return f"cache.window_bytes is {size}, and no layer of {model} has a window" if size else ""
    most = plan.tasks[lane.body["cell"]["task"]].max_new_tokens
    tokens = int(lane.body["prompt_tokens"]) + lane.query + most
    slots = kept.slots(lane.trajectory.heads, tokens)
    if (stored := _stored(plan, lane)) is not None:
        measure = measure._replace(least=stored.computed, most=stored.computed)
    if size and size % slots == 0 and measure.least <= size // slots <= measure.most:
        return ""
    sizes = f"{measure.least} to {measure.most}"
    return f"cache.window_bytes is {size}; the windows of {model} are {slots} slots of {sizes} bytes"


def carried(plan: Plan, lane: Lane, measure: Measure) -> str:
    interval, size = 0 if lane.full else lane.arm.interval, lane.cache["state_bytes"]
    least = POSITION * max((after for _, _, after in lane.events), default=0)
    _, before, after = lane.events[0] if lane.events else (0, 0, 0)
    parked = lane.arm.parks * after * measure.most if after < before else 0
    if interval == 0 and size > parked:
        told = f", and what it parks takes {parked} at most" if parked else ""
        return f"cache.state_bytes is {size}, and no event can fire while it decodes{told}"
    if interval and size < least:
        return f"cache.state_bytes is {size}; the positions of its slots alone take {least}"
    return ""


def _due(plan: Plan, lane: Lane) -> Iterator[int]:
    """Yield the expected steps of the evictions after the first one."""
    heads, interval, slots = lane.trajectory.heads, lane.arm.interval or 0, lane.body["slots"] or 0
    end = lane.fed + 1 if lane.settled is None else lane.settled
    if lane.arm.every:
        yield from (step for step in range(interval, end, interval) if step >= plan.first_event)
        return
    bound = (slots + interval) * heads if lane.arm.slack else slots * heads + 1
    events = {step: after for step, _, after in lane.events[1:]}
    level, at = lane.events[0][2], 0
    if lane.outside:
        level += heads * lane.query
        if plan.first_event == 0 and level >= bound:
            yield 0
            level = next((after for step, _, after in lane.events[1:2] if step == 0), level)
            events.pop(0, None)
    while True:
        step = max(at + 1, plan.first_event, at - (level - bound) // heads)
        if not lane.arm.slack:
            step = -(-step // interval) * interval
        if step >= end:
            return
        yield step
        if step not in events:
            return
        level, at = events[step], step


def _stored(plan: Plan, lane: Lane) -> Stored | None:
    return plan.stored.get((lane.body["cell"]["model"], lane.cell.arm))


def _spare(plan: Plan, lane: Lane) -> int:
    """Return the most slots by which the allocation of a head is rounded up."""
    if (stored := _stored(plan, lane)) is None:
        return (QUANTUM - 1) * plan.batched
    return -(-QUANTUM * stored.computed // stored.bytes) - 1


def _sizes(measure: Measure, own: set[int], low: int, high: int) -> tuple[int, int]:
    """Return the bounds of the bytes of a slot if an allocation of `sizes` bytes has `min_slots` to
    `max_slots` slots.
    """
    return max(measure.least, -(-max(own) // high)), min(measure.most, min(own) // low)


def _rooms(plan: Plan, lane: Lane) -> Iterator[tuple[int, set[int], int, int]]:
    """Yield each moment at which a lane gets a new allocation, the sizes in bytes from there on, and the
    bounds of its slots. Yields nothing if the evictions do not fit the budget.
    """
    if lane.full != (not lane.events):
        return
    starts = [0, *(step + lane.outside for step, *_ in lane.events[1:])]
    if settled := _grown(lane):
        starts.append(settled + lane.outside)
    for number, start in enumerate(starts):
        end = starts[number + 1] if number + 1 < len(starts) else None
        windows = lane.cache.get("window_bytes", 0)
        if own := {size - windows for size in lane.trajectory.allocated[start:end]}:
            held = max(lane.trajectory.held[start:end], default=0)
            yield start, own, *_room(plan, lane, number, held)


def _grown(lane: Lane) -> int:
    """Return the step at which the allocation of a lane grew because its thinking ended and no eviction
    follows; 0 if it did not.
    """
    last = lane.events[-1][0] if lane.events else 0
    if lane.settled is None or lane.full or lane.arm.interval == 0 or lane.settled <= last:
        return 0
    return lane.settled


def _room(plan: Plan, lane: Lane, number: int, held: int) -> tuple[int, int]:
    """Return the bounds of the slots, over all heads, that are allocated after eviction `number`, or after
    the mark if there are no more; until the next one the lane holds at most `max_held`.
    """
    heads = lane.trajectory.heads
    if lane.full:
        return (_whole(plan, lane),) * 2
    most = plan.tasks[lane.body["cell"]["task"]].max_new_tokens
    if number == len(lane.events):  # after the mark: room for the rest of the answer
        step = _grown(lane)
        least = lane.trajectory.held[step + lane.outside] + heads * (most - step)
        return least, least + heads * _spare(plan, lane)
    after = lane.events[number][2]
    query = 0 if number else lane.query
    most += query
    if lane.arm.interval != 0:
        if not lane.arm.plain or lane.arm.interval is None:
            return max(1, held), MOST
        wait = 0 if number else max(0, plan.first_event - 1)
        below = max(0, (lane.body["slots"] or 0) - after // heads)
        most = min(most, below + query + wait + lane.arm.interval)
    least = after + heads * most
    return least, least + heads * _spare(plan, lane)


def _whole(plan: Plan, lane: Lane) -> int:
    """Return the slots, over all heads, that a lane without evictions allocates."""
    most = plan.tasks[lane.body["cell"]["task"]].max_new_tokens
    slots = int(lane.body["prompt_tokens"]) + lane.query + most
    if (stored := _stored(plan, lane)) is not None:
        return lane.trajectory.heads * stored.rounded(slots)
    return lane.trajectory.heads * (-(-slots // QUANTUM) * QUANTUM if plan.batched else slots)


def _six(total: int, parts: int) -> str:
    return f"{Decimal(total) / Decimal(parts):.6f}"


def _at(values: Sequence[int], place: int) -> int | str:
    return values[place] if place < len(values) else "missing"


RELATIONS = (
    Relation(
        "moments",
        "A trajectory has one entry for the first event, one for a question outside and one for each new "
        'token that was fed: all of `tokens`, but for the last one where `stop` is "length".',
        ("trajectory.held", "trajectory.allocated", "tokens", "stop"),
        "trajectory",
        moments,
    ),
    Relation(
        "heads",
        "`heads` is the same in all trajectories of a model, and what `slot_bytes` of the lock says, if it "
        "has that.",
        ("trajectory.heads", "cell.model"),
        "trajectory",
        heads,
    ),
    Relation(
        "summary",
        "`cache` is what the trajectory gives: means, peaks and the first entry.",
        (
            *(f"cache.{name}" for name in ("mean", "peak", "prefill_end", "mean_bytes", "peak_bytes")),
            "trajectory.held",
            "trajectory.allocated",
            "trajectory.heads",
        ),
        "trajectory",
        summary,
    ),
    Relation(
        "growth",
        "Slots held follow from the events: the prompt fills its tokens in every head, the first event is "
        "at step 0, each forward adds one slot a head and token, and an event finds what is held and leaves "
        "what it says. A lane has no event if and only if its budget is full.",
        ("cache.events", "trajectory.held", "prompt_tokens", "cell.budget"),
        "trajectory",
        growth,
    ),
    Relation(
        "cadence",
        "Events while decoding fire at the steps that the lock's interval gives for what is held, not "
        "before its first_event, and at no other; none from the mark on that ended the thinking. Only this "
        "last is asked where the arm's cadence is not a plain one.",
        ("cache.events", "cell.arm", "thought"),
        "trajectory",
        due,
    ),
    Relation(
        "granted",
        "Each event has its grant, which is the budget in `slots` where the arm's cadence is a plain one. "
        "Records of before 2026-11-22 have none.",
        ("cache.granted", "cache.events", "slots"),
        "trajectory",
        granted,
    ),
    Relation(
        "left",
        "An event that finds no more than its grant in every head leaves all; else it leaves no more than "
        "the grant, and all of that where the arm's selection uses all of it. Where the arm's routing takes "
        "the budget as a bound, it may leave less. A press leaves some of what there is, more or less than "
        "that.",
        ("cache.events", "cache.granted", "slots"),
        "trajectory",
        left,
    ),
    Relation(
        "room",
        "Bytes allocated change at events alone and at the mark that ends the thinking. Without "
        "`window_bytes` they are whole slots of one size a model, and those of the slots held, of the tokens "
        "to come before the next event, or from the mark on before the end, and of fewer than 16 slots of "
        "rounding a head. The full cache tells the size; where none ran, one size fits all lanes. Where the "
        "lock has `slot_bytes`, it says the size, for each arm, and the rounding is to the bytes of 16 slots "
        "as computed.",
        ("trajectory.allocated", "cache.mean_bytes", "cache.peak_bytes", "thought", "cell.arm"),
        "trajectory",
        room,
    ),
    Relation(
        "windows",
        "`window_bytes` is there where the lock has `layers` of the model, and only there. It is, in each "
        "sliding layer and KV head, as many slots as the lane may see tokens, rounded up to a multiple of "
        "16, but no more than the window, each of the bytes of a slot as computed.",
        ("cache.window_bytes", "cell.model", "prompt_tokens"),
        "trajectory",
        windows,
    ),
    Relation(
        "carried",
        "`state_bytes` is 0 where no event can fire while decoding, but for the slots of the other caches "
        "that an arm parks whose lock says so; else it holds the positions of the slots.",
        ("cache.state_bytes", "cache.events"),
        "trajectory",
        carried,
    ),
)
