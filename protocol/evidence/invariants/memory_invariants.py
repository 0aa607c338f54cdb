"""Invariants between a record's account of its memory and the trajectory that it cites."""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import TypeAlias

from protocol.evidence.invariants.invariant import declare_invariant
from protocol.evidence.invariants.planned_lanes import QUANTUM, ArmSlots, Plan
from protocol.evidence.invariants.recorded_lanes import Lane, SlotBounds
from protocol.formats.record_fields import format_reads

UNBOUNDED = 1 << 62  # stands for no upper bound
# From which moment, the sizes in bytes from there on, and the bounds of its slots.
Allocation: TypeAlias = tuple[int, set[int], int, int]
POSITION_BYTES = 8  # bytes of a slot's position, which a lane that evicts while decoding stores


def narrow_slot_bounds(plan: Plan, lanes: Sequence[Lane], earlier: SlotBounds | None) -> SlotBounds | None:
    """Narrow the bounds of `earlier` lanes by these lanes of the same model, which all have trajectories;
    None if there are no lanes at all. A lane that is inconsistent with the bounds so far is ignored, and so
    is one for which the lock gives the bytes of a slot.
    """
    if not lanes:
        return earlier
    bounds = earlier or SlotBounds(lanes[0].trajectory.heads, 1, UNBOUNDED)
    unspecified = (lane for lane in lanes if _arm_slots(plan, lane) is None)
    for lane in sorted(unspecified, key=lambda lane: not lane.never_evicts):  # full-cache lanes first: they are exact
        if bounds.min_bytes == bounds.max_bytes:
            break
        for _, sizes, min_slots, max_slots in _allocations(plan, lane):
            min_bytes, max_bytes = _slot_byte_bounds(bounds, sizes, min_slots, max_slots)
            if min_bytes <= max_bytes:
                bounds = SlotBounds(bounds.heads, min_bytes, max_bytes)
    return bounds


@declare_invariant("moments", "trajectory", "trajectory.held", "trajectory.allocated", "tokens", "stop")
def check_moments(plan: Plan, lane: Lane, slot_bounds: SlotBounds) -> str:
    """A trajectory has one entry for the first event, one for a question outside the context and one for each new
    token that was fed: all of `tokens`, except the last one where `stop` is "length".
    """
    count, expected = len(lane.trajectory.slots), 1 + lane.query_outside + lane.fed_tokens
    if count == expected:
        return ""
    ending = f"{lane.body['tokens']} tokens with the stop {lane.body['stop']}"
    return f"trajectory.held has {count} moments, but {ending} have {expected}"


@declare_invariant("heads", "trajectory", "trajectory.heads", "cell.model")
def check_heads(plan: Plan, lane: Lane, slot_bounds: SlotBounds) -> str:
    """`heads` is the same in all trajectories of a model, and equals the number in `slot_bytes` of the lock, if
    there is one.
    """
    lane_heads, arm_slots = lane.trajectory.heads, _arm_slots(plan, lane)
    if arm_slots is not None and lane_heads != arm_slots.heads:
        return f"trajectory.heads is {lane_heads}, but {arm_slots.heads} in the lock"
    return (
        ""
        if lane_heads == slot_bounds.heads
        else f"trajectory.heads is {lane_heads}, but {slot_bounds.heads} in other lanes"
    )


@declare_invariant(
    "summary",
    "trajectory",
    *(f"cache.{name}" for name in ("mean", "peak", "prefill_end", "mean_bytes", "peak_bytes")),
    "trajectory.held",
    "trajectory.allocated",
    "trajectory.heads",
)
def check_summary(plan: Plan, lane: Lane, slot_bounds: SlotBounds) -> str:
    """`cache` follows from the trajectory: its means, peaks and first entry."""
    slots, allocated, heads = lane.trajectory
    expected = {
        "mean": _format_mean(sum(slots), len(slots) * heads),
        "peak": _format_mean(max(slots), heads),
        "prefill_end": _format_mean(slots[0], heads),
        "mean_bytes": sum(allocated) // len(allocated),
        "peak_bytes": max(allocated),
    }
    differing = (name for name, value in expected.items() if lane.cache[name] != value)
    messages = (f"cache.{name} is {lane.cache[name]}, but its trajectory gives {expected[name]}" for name in differing)
    return next(messages, "")


@declare_invariant("growth", "trajectory", "cache.events", "trajectory.held", "prompt_tokens", "cell.budget")
def check_growth(plan: Plan, lane: Lane, slot_bounds: SlotBounds) -> str:
    """The slots held follow from the events. The prompt fills as many slots as it has tokens in every head, the
    first event is at step 0, each forward pass adds one slot for each head and token, and each event starts with
    the slots held and leaves the slots that it gives. A lane has no event if and only if its arm never evicts.
    """
    slots, _, heads = lane.trajectory
    prompt = heads * lane.body["prompt_tokens"]
    if lane.never_evicts != (not lane.events):
        return f"cache.events has {len(lane.events)} entries, but its arm fires {lane.arm.fires!r}"
    first = lane.events[0] if lane.events else [0, prompt, prompt]
    if first[:2] != [0, prompt]:
        return f"cache.events begins with {first}, but the prompt fills {prompt} slots at step 0"
    steps = len(slots) - 1 - lane.query_outside
    expected, level, last_step = [first[2]], first[2], 0
    if lane.query_outside:
        level += heads * lane.query_tokens
        expected.append(level)
    for step, slots_before, slots_after in lane.events[1:]:
        is_after_query = step == last_step == 0 and lane.query_outside  # an eviction right after the question
        if not (last_step < step <= steps or is_after_query):
            return f"cache.events has an event at step {step}, of {steps} steps, after the event at step {last_step}"
        expected += range(level + heads, level + heads * (step - last_step) + 1, heads)
        if slots_before != (level := expected[-1]):
            return f"cache.events has {slots_before} slots before step {step}, but the trajectory has {level}"
        expected[-1], level, last_step = slots_after, slots_after, step
    expected += range(level + heads, level + heads * (steps - last_step) + 1, heads)
    if expected == slots:
        return ""
    moment = next((i for i, (a, b) in enumerate(zip(expected, slots, strict=False)) if a != b), len(slots))
    return f"trajectory.held is {_value_at(slots, moment)} at moment {moment}, not {_value_at(expected, moment)}"


@declare_invariant("cadence", "trajectory", "cache.events", "cell.arm", "thought")
def check_schedule(plan: Plan, lane: Lane, slot_bounds: SlotBounds) -> str:
    """While decoding, events fire exactly at the steps that follow from the lock's interval and the slots held, not
    before its first_event, and not after the mark that ended the thinking. If the arm's cadence is not a plain one,
    only the last of these is checked.
    """
    late_steps = [step for step, *_ in lane.events[1:] if lane.thinking_end is not None and step >= lane.thinking_end]
    if late_steps:
        return f"cache.events has an event at step {late_steps[0]}, but the thinking ended at step {lane.thinking_end}"
    if lane.never_evicts or not lane.events or (not lane.arm.is_plain and lane.arm.interval != 0):
        return ""
    steps = [event[0] for event in lane.events[1:]]
    expected = list(_expected_steps(plan, lane)) if lane.arm.interval else []
    if steps == expected:
        return ""
    index = next((i for i, (a, b) in enumerate(zip(steps, expected, strict=False)) if a != b), None)
    index = min(len(steps), len(expected)) if index is None else index
    return (
        f"cache.events[{index + 1}] is at step {_value_at(steps, index)}, but is expected at "
        f"{_value_at(expected, index)}"
    )


@declare_invariant("granted", "trajectory", "cache.granted", "cache.events", "slots")
def check_grants(plan: Plan, lane: Lane, slot_bounds: SlotBounds) -> str:
    """Each event has a grant, which equals the budget in `slots` if the arm's cadence is a plain one. Some records
    of version 1 have no grants.
    """
    grants = lane.cache.get("granted")
    if grants is None:
        return "cache.granted is missing" if plan.has_grants else ""
    if len(grants) != len(lane.events):
        return f"cache.granted has {len(grants)} entries for {len(lane.events)} events"
    if lane.arm.is_plain and set(grants) - {lane.body["slots"]}:
        return f"cache.granted is {grants[:3]}, but its budget is {lane.body['slots']}"
    return ""


@declare_invariant("left", "trajectory", "cache.events", "cache.granted", "slots")
def check_remaining(plan: Plan, lane: Lane, slot_bounds: SlotBounds) -> str:
    """An event that finds no more slots than its grant in every head leaves all of them. Otherwise it leaves at
    most the grant, and exactly the grant if the arm's selection uses all of it; if the arm's routing only bounds
    the budget, it may leave fewer. A press leaves some of the slots, which may be more or fewer than the grant.
    """
    heads, arm, slots = lane.trajectory.heads, lane.arm, lane.body["slots"] or 0
    grants = lane.cache.get("granted", [slots] * len(lane.events) if arm.is_plain else [])
    for (step, slots_before, slots_after), grant in zip(lane.events, grants, strict=False):
        max_slots = grant * heads
        if arm.is_press:
            is_allowed = 0 < slots_after <= slots_before
        elif slots_before <= max_slots:
            is_allowed = slots_after == slots_before or (arm.may_leave_less and slots_after < slots_before)
        else:
            is_allowed = (
                slots_after < slots_before
                and not (arm.leaves_at_most and slots_after > max_slots)
                and not (arm.leaves_exactly and slots_after != max_slots)
            )
        if not is_allowed:
            return f"cache.events leaves {slots_after} of {slots_before} slots at step {step}, granted {max_slots}"
    return ""


@declare_invariant(
    "room", "trajectory", "trajectory.allocated", "cache.mean_bytes", "cache.peak_bytes", "thought", "cell.arm"
)
def check_allocation(plan: Plan, lane: Lane, slot_bounds: SlotBounds) -> str:
    """The bytes allocated change only at events and at the mark that ends the thinking. Without `window_bytes` they
    are a whole number of slots, all of one size in each model: the slots held, those of the tokens before the next
    event (after the mark: before the end), and fewer than 16 slots of rounding in each head. The full cache
    determines the size of a slot; where no full cache ran, one size must fit all lanes. Where the lock has
    `slot_bytes`, it gives the size for each arm, and sizes are rounded to the bytes of 16 slots as computed; where
    it gives bytes for the latest slots, every head has these in addition.
    """
    if (arm_slots := _arm_slots(plan, lane)) is not None:
        slot_bounds = slot_bounds._replace(min_bytes=arm_slots.stored_bytes, max_bytes=arm_slots.stored_bytes)
    recent_bytes = 0 if arm_slots is None else lane.trajectory.heads * arm_slots.recent_bytes
    for start, allocated, min_slots, max_slots in _allocations(plan, lane):
        sizes = {size - recent_bytes for size in allocated} if recent_bytes else allocated
        min_bytes, max_bytes = _slot_byte_bounds(slot_bounds, sizes, min_slots, max_slots)
        is_whole_slots = slot_bounds.min_bytes != slot_bounds.max_bytes or not max(sizes) % slot_bounds.min_bytes
        if len(sizes) > 1 or not is_whole_slots or min_bytes > max_bytes:
            sizes_text = ", ".join(map(str, sorted(allocated)[:3]))
            bounds = " to ".join(
                str(slots * size + recent_bytes)
                for slots, size in ((min_slots, slot_bounds.min_bytes), (max_slots, slot_bounds.max_bytes))
            )
            return f"trajectory.allocated is {sizes_text} from moment {start}, not one of {bounds}"
    return ""


@declare_invariant("windows", "trajectory", "cache.window_bytes", "cell.model", "prompt_tokens")
def check_windows(plan: Plan, lane: Lane, slot_bounds: SlotBounds) -> str:
    """`window_bytes` is present if and only if the lock has `layers` of the model. For each sliding-window layer
    and KV head it counts as many slots as the lane may have tokens, rounded up to a multiple of 16 but at most the
    window, each with the bytes of a slot as computed.
    """
    model, size = lane.body["cell"]["model"], lane.cache.get("window_bytes", 0)
    if (window_layers := plan.window_layers.get(model)) is None:
        return f"cache.window_bytes is {size}, but no layer of {model} has a window" if size else ""
    max_new_tokens = plan.tasks[lane.body["cell"]["task"]].max_new_tokens
    tokens = int(lane.body["prompt_tokens"]) + lane.query_tokens + max_new_tokens
    slots = window_layers.count_slots(lane.trajectory.heads, tokens)
    if (arm_slots := _arm_slots(plan, lane)) is not None:
        slot_bounds = slot_bounds._replace(min_bytes=arm_slots.computed_bytes, max_bytes=arm_slots.computed_bytes)
    if size and slots > 0 and size % slots == 0 and slot_bounds.min_bytes <= size // slots <= slot_bounds.max_bytes:
        return ""
    sizes = f"{slot_bounds.min_bytes} to {slot_bounds.max_bytes}"
    return f"cache.window_bytes is {size}, but the windows of {model} are {slots} slots of {sizes} bytes"


@declare_invariant("carried", "trajectory", "cache.state_bytes", "cache.events")
def check_state_bytes(plan: Plan, lane: Lane, slot_bounds: SlotBounds) -> str:
    """`state_bytes` is 0 where no event can fire while decoding, except for the slots of parked caches if the lock
    says that the arm parks some. Otherwise it includes at least the positions of the slots.
    """
    interval, size = 0 if lane.never_evicts else lane.arm.interval, lane.cache["state_bytes"]
    min_size = POSITION_BYTES * max((slots_after for _, _, slots_after in lane.events), default=0)
    _, slots_before, slots_after = lane.events[0] if lane.events else (0, 0, 0)
    parked_bytes = lane.arm.parked_caches * slots_after * slot_bounds.max_bytes if slots_after < slots_before else 0
    if interval == 0 and size > parked_bytes:
        parked_text = f", and its parked caches take at most {parked_bytes}" if parked_bytes else ""
        return f"cache.state_bytes is {size}, but no event can fire while it decodes{parked_text}"
    if interval and size < min_size:
        return f"cache.state_bytes is {size}, but the positions of its slots alone take {min_size}"
    return ""


@declare_invariant("reads", "trajectory", "cache.reads", "trajectory.held", "cell.arm")
def check_reads(plan: Plan, lane: Lane, slot_bounds: SlotBounds) -> str:
    """`reads` is present if and only if the arm's state reads pages or the rule compares reads. A new token reads
    at least one slot for each page, for its bounds, and at most these plus all slots, including its own; without
    pages it reads all slots.
    """
    page, reads, steps = lane.arm.page, lane.cache.get("reads"), lane.fed_tokens
    if page is None and plan.compares_reads:
        expected = format_reads(lane.trajectory.slots, lane.trajectory.heads, steps)
        return "" if reads == expected else f"cache.reads is {reads}, its trajectory gives {expected}"
    if page is None or reads is None:
        return "" if page == reads else f"cache.reads is {reads}, but the lock gives pages of {page}"
    heads = lane.trajectory.heads * steps
    present = sum(lane.trajectory.slots[-steps - 1 : -1]) + heads if steps else 0
    counts = -(-present // page), present + (present + heads * (page - 1)) // page
    least, most = (_format_mean(count, heads or 1) for count in counts)
    is_within = Decimal(least) <= Decimal(reads) <= Decimal(most)
    return "" if is_within else f"cache.reads is {reads}, but its trajectory gives {least} to {most}"


def _expected_steps(plan: Plan, lane: Lane) -> Iterator[int]:
    """Yield the expected steps of the evictions after the first one."""
    heads, interval, slots = lane.trajectory.heads, lane.arm.interval, lane.body["slots"] or 0
    end = lane.fed_tokens + 1 if lane.thinking_end is None else lane.thinking_end
    if lane.arm.fires == "every":
        yield from (step for step in range(interval, end, interval) if step >= plan.first_event)
        return
    max_slots = (slots + interval) * heads if lane.arm.fires == "slack" else slots * heads + 1
    slots_after_events = {step: slots_after for step, _, slots_after in lane.events[1:]}
    level, last_step = lane.events[0][2], 0
    if lane.query_outside:
        level += heads * lane.query_tokens
        if plan.first_event == 0 and level >= max_slots:
            yield 0
            level = next((slots_after for step, _, slots_after in lane.events[1:2] if step == 0), level)
            slots_after_events.pop(0, None)
    while True:
        step = max(last_step + 1, plan.first_event, last_step - (level - max_slots) // heads)
        if lane.arm.fires != "slack":
            step = -(-step // interval) * interval
        if step >= end:
            return
        yield step
        if step not in slots_after_events:
            return
        level, last_step = slots_after_events[step], step


def _arm_slots(plan: Plan, lane: Lane) -> ArmSlots | None:
    return plan.arm_slots.get((lane.body["cell"]["model"], lane.cell.arm))


def _max_rounding(plan: Plan, lane: Lane) -> int:
    """Return the most slots by which the allocation of a head is rounded up."""
    if (arm_slots := _arm_slots(plan, lane)) is None:
        return (QUANTUM - 1) * plan.has_batches
    return -(-QUANTUM * arm_slots.computed_bytes // arm_slots.stored_bytes) - 1


def _slot_byte_bounds(slot_bounds: SlotBounds, sizes: set[int], min_slots: int, max_slots: int) -> tuple[int, int]:
    """Return the bounds of the bytes of a slot if `sizes` bytes are allocated to `min_slots` to `max_slots` slots.
    An edited trajectory may imply fewer than one; the relation "one question" names its lane.
    """
    min_slots, max_slots = max(1, min_slots), max(1, max_slots)
    return max(slot_bounds.min_bytes, -(-max(sizes) // max_slots)), min(slot_bounds.max_bytes, min(sizes) // min_slots)


def _allocations(plan: Plan, lane: Lane) -> Sequence[Allocation]:
    """Return each moment at which a lane gets a new allocation, the sizes in bytes from there on, and the
    bounds of its slots. Empty if the evictions do not fit the budget. Two invariants need them.
    """
    if lane.allocations is None:
        lane.allocations = [*_derive_allocations(plan, lane)]
    return lane.allocations


def _derive_allocations(plan: Plan, lane: Lane) -> Iterator[Allocation]:
    if lane.never_evicts != (not lane.events):
        return
    starts = [0, *(step + lane.query_outside for step, *_ in lane.events[1:])]
    if growth_step := _growth_step(lane):
        starts.append(growth_step + lane.query_outside)
    window_bytes, rounding = lane.cache.get("window_bytes", 0), lane.trajectory.heads * _max_rounding(plan, lane)
    allocated = lane.trajectory.allocated
    for number, (start, end) in enumerate(pairwise([*starts, len(allocated)])):
        if sizes := set(allocated[start:end]):
            if window_bytes:
                sizes = {size - window_bytes for size in sizes}
            yield start, sizes, *_allocation_bounds(plan, lane, number, slice(start, end), rounding)


def _growth_step(lane: Lane) -> int:
    """Return the step at which an allocation grew as the thinking ended, with no eviction after it; 0 if it did not."""
    last_step = lane.events[-1][0] if lane.events else 0
    if lane.thinking_end is None or lane.never_evicts or lane.arm.interval == 0 or lane.thinking_end <= last_step:
        return 0
    return lane.thinking_end


def _allocation_bounds(plan: Plan, lane: Lane, number: int, moments: slice, rounding: int) -> tuple[int, int]:
    """Return the bounds of the slots, over all heads, that are allocated after eviction `number`, or after
    the mark if there are no more. moments: until the next one. rounding: the most slots that are rounded up.
    """
    heads = lane.trajectory.heads
    if lane.never_evicts:
        return (_full_cache_slots(plan, lane),) * 2
    max_new_tokens = plan.tasks[lane.body["cell"]["task"]].max_new_tokens
    if number == len(lane.events):  # after the mark: room for the rest of the answer
        step = _growth_step(lane)
        min_slots = lane.trajectory.slots[step + lane.query_outside] + heads * (max_new_tokens - step)
        return min_slots, min_slots + rounding
    slots_after = lane.events[number][2]
    query_tokens = 0 if number else lane.query_tokens
    max_new_tokens += query_tokens
    if lane.arm.interval != 0:
        if not lane.arm.is_plain:
            return max(1, *lane.trajectory.slots[moments]), UNBOUNDED
        wait = 0 if number else max(0, plan.first_event - 1)
        free_slots = max(0, (lane.body["slots"] or 0) - slots_after // heads)
        max_new_tokens = min(max_new_tokens, free_slots + query_tokens + wait + lane.arm.interval)
    min_slots = slots_after + heads * max_new_tokens
    return min_slots, min_slots + rounding


def _full_cache_slots(plan: Plan, lane: Lane) -> int:
    """Return the slots, over all heads, that a lane without evictions allocates."""
    max_new_tokens = plan.tasks[lane.body["cell"]["task"]].max_new_tokens
    slots = int(lane.body["prompt_tokens"]) + lane.query_tokens + max_new_tokens
    if (arm_slots := _arm_slots(plan, lane)) is not None:
        return lane.trajectory.heads * arm_slots.round_up(slots)
    return lane.trajectory.heads * (-(-slots // QUANTUM) * QUANTUM if plan.has_batches else slots)


def _format_mean(total: int, count: int) -> str:
    return f"{Decimal(total) / Decimal(count):.6f}"


def _value_at(values: Sequence[int], index: int) -> int | str:
    return values[index] if index < len(values) else "missing"
