"""Invariants within one record: its state, budget, text and costs."""

from protocol.evidence.invariants.invariant import declare_invariant
from protocol.evidence.invariants.planned_lanes import Plan, budget_slots
from protocol.evidence.invariants.recorded_lanes import Lane, SlotBounds
from protocol.evidence.invariants.vocabulary import BOXED, THINK
from protocol.formats.registry import load_attribute


@declare_invariant("registration", "record", "registration", "phase")
def check_lock(plan: Plan, lane: Lane, slot_bounds: SlotBounds) -> str:
    """A record names the lock of its folder, and the phase whose folder it is in."""
    if lane.body["registration"] != plan.registration:
        return f"registration is {lane.body['registration']}, but the lock's digest is {plan.registration}"
    if lane.body["phase"] != plan.phase:
        return f"phase is {lane.body['phase']!r} in the folder of {plan.phase!r}"
    return ""


@declare_invariant("budget", "record", "cell.budget", "slots", "prompt_tokens")
def check_budget(plan: Plan, lane: Lane, slot_bounds: SlotBounds) -> str:
    """`slots` follows from the budget: null for "full"; a whole number unchanged; for a share, the share of
    `prompt_tokens` rounded up; for a share of the full cache's use, the number in the lock for the model and task;
    for bytes, the number in the lock for the model and arm.
    """
    recorded_slots, expected_slots = (
        lane.body["slots"],
        budget_slots(plan, lane.body["cell"], lane.body["prompt_tokens"]),
    )
    return (
        "" if recorded_slots == expected_slots else f"slots is {recorded_slots}, but its budget gives {expected_slots}"
    )


@declare_invariant("exclusion", "record", "state", "reason", "prompt_tokens")
def check_exclusion(plan: Plan, lane: Lane, slot_bounds: SlotBounds) -> str:
    """A lane is excluded if and only if its prompt has more tokens than the lock allows, and the reason gives both
    numbers.
    """
    tokens, state = lane.body["prompt_tokens"], lane.body["state"]
    is_too_long = plan.max_prompt_tokens is not None and tokens > plan.max_prompt_tokens
    if is_too_long != (state == "excluded"):
        return f"state is {state!r} with {tokens} prompt_tokens, but the lock's limit is {plan.max_prompt_tokens}"
    if is_too_long and lane.body["reason"] != (reason := f"prompt_tokens: {tokens}, above {plan.max_prompt_tokens}"):
        return f"reason is {lane.body['reason']!r}, not {reason!r}"
    return ""


@declare_invariant("state", "record", "state", "trajectory", "text", "tokens", "answer", "grade_reason")
def check_state(plan: Plan, lane: Lane, slot_bounds: SlotBounds) -> str:
    """A lane has a trajectory if and only if its state is ok; otherwise it also has no text, tokens, answer and
    grade_reason.
    """
    body, has_ended_well = lane.body, lane.body["state"] == "ok"
    if (body["trajectory"] is not None) != has_ended_well:
        return f"trajectory is {body['trajectory']}, which contradicts the state {body['state']!r}"
    if has_ended_well:
        return ""
    filled_fields = (name for name in ("text", "tokens", "answer", "grade_reason") if body[name])
    return next((f"{name} is {body[name]!r} in the state {body['state']!r}" for name in filled_fields), "")


@declare_invariant("stop", "record", "stop", "tokens", "cell.task")
def check_stop(plan: Plan, lane: Lane, slot_bounds: SlotBounds) -> str:
    """`stop` is "length" if and only if `tokens` is the number that the task allows; it is never larger."""
    tokens, stop = lane.body["tokens"], lane.body["stop"]
    max_tokens = plan.tasks[lane.body["cell"]["task"]].max_new_tokens
    if stop is None or (tokens <= max_tokens and (tokens == max_tokens) == (stop == "length")):
        return ""
    return f"stop is {stop!r} after {tokens} tokens, of which the task allows {max_tokens}"


@declare_invariant("text", "record", "text", "tokens")
def check_text(plan: Plan, lane: Lane, slot_bounds: SlotBounds) -> str:
    """A lane without tokens has no text. If the model's tokenizer is in the locked bundle, a text has as many words
    as `tokens` (where tokens are words), or at most as many characters as this number of the tokenizer's longest
    pieces.
    """
    text, tokens = lane.body["text"], lane.body["tokens"]
    vocabulary = plan.vocabularies.get(lane.body["cell"]["model"])
    if not tokens:
        return f"tokens is 0, but text has {len(text)} characters" if text else ""
    if vocabulary is None:
        return ""
    if vocabulary.is_word_level:
        count = text.count(" ") + 1
        return "" if tokens == count else f"tokens is {tokens}, but text has {count} words"
    if len(text) > tokens * (vocabulary.longest_token + 1):
        return f"tokens is {tokens}, but text has {len(text)} characters"
    return ""


@declare_invariant("thought", "record", "thought", "tokens", "text")
def check_thinking(plan: Plan, lane: Lane, slot_bounds: SlotBounds) -> str:
    """If and only if `generation.think_only` is locked, a lane in the state ok records how much of it was thinking:
    at most `tokens`, and null without a mark in `text`. For a model whose locked tokens are words, it is the
    position of the first mark.
    """
    body = lane.body
    if ("thought" in body) != (plan.think_only and body["state"] == "ok"):
        presence = "is there" if "thought" in body else "is missing"
        request = "asks" if plan.think_only else "does not allow it"
        return f"thought {presence} in the state {body['state']!r}, but the lock {request} for it"
    thinking_tokens, text, tokens = body.get("thought"), body["text"], body["tokens"]
    vocabulary = plan.vocabularies.get(body["cell"]["model"])
    if thinking_tokens is not None and thinking_tokens > tokens:
        return f"thought is {thinking_tokens} of {tokens} tokens"
    if thinking_tokens is not None and not (THINK in text or BOXED in text):
        return f"thought is {thinking_tokens}, but text has no {THINK} and no {BOXED}"
    if (
        "thought" in body
        and vocabulary is not None
        and vocabulary.is_word_level
        and thinking_tokens != vocabulary.count_thinking_tokens(text)
    ):
        return f"thought is {thinking_tokens}, but text gives {vocabulary.count_thinking_tokens(text)}"
    return ""


@declare_invariant("no answer", "record", "grade", "answer")
def check_no_answer(plan: Plan, lane: Lane, slot_bounds: SlotBounds) -> str:
    """Where the grade is "no answer", the answer is null."""
    if lane.body["grade"] == "no answer" and lane.body["answer"] is not None:
        return f"grade is 'no answer', but answer is {lane.body['answer']!r}"
    return ""


@declare_invariant("divergence", "record", "divergence.agrees", "divergence.nats", "score", "tokens", "stop")
def check_divergence(plan: Plan, lane: Lane, slot_bounds: SlotBounds) -> str:
    """If and only if an outcome is locked, a lane in the state ok, except of the full cache, records how it differs
    from the full cache: at each of its `tokens`, and at the stop token if it ended with one. `score` is the share
    of positions at which it agrees, and no position has more than 1000 nats.
    """
    if not plan.has_outcome:
        return "divergence is present, but the lock has no outcome" if "divergence" in lane.body else ""
    find_fault = load_attribute("protocol.evidence.invariants.followed_lanes:find_divergence_fault")
    return str(find_fault(lane))


@declare_invariant(
    "costs", "record", "costs.prefill_seconds", "costs.decode_seconds", "costs.lanes", "costs.device", "state"
)
def check_costs(plan: Plan, lane: Lane, slot_bounds: SlotBounds) -> str:
    """A lane that was prefilled has the seconds of its prefill, and a lane in the state ok those of decoding.
    `lanes` occurs only in some records of version 1, where it counts every cell of the problem. A lane ran on the
    CPU if and only if the lock registers that.
    """
    state, costs = lane.body["state"], lane.costs
    if not plan.has_batches and state != "ok":
        return ""  # older records of such lanes differ between versions
    for name, is_expected in (("prefill_seconds", state != "excluded"), ("decode_seconds", state == "ok")):
        if (name in costs) != is_expected:
            return f"costs.{name} is {costs.get(name, 'missing')} in the state {state!r}"
    lanes = None if plan.has_batches else len(plan.units[lane.position[0]].cells)
    if costs.get("lanes") != lanes:
        return f"costs.lanes is {costs.get('lanes', 'missing')}, but must be {lanes or 'missing'}"
    for name in ("executor", "host", "device") if plan.has_machines else ():
        if name not in costs:
            return f"costs.{name} is missing"
    if "device" in costs and costs["device"].endswith("cpu") != (plan.device == "cpu"):
        return f"costs.device is {costs['device']!a}, but the device of the lock is {plan.device}"
    return ""
