"""Invariants within one record: its state, budget, text and costs."""

from protocol.evidence.relations.planned_lanes import Plan, slots_of
from protocol.evidence.relations.recorded_lanes import Lane
from protocol.evidence.relations.relation import Measure, Relation
from protocol.evidence.relations.vocabulary import BOXED, THINK

__all__ = ["RELATIONS"]


def of_this_lock(plan: Plan, lane: Lane, measure: Measure) -> str:
    if lane.body["registration"] != plan.registration:
        return f"registration is {lane.body['registration']}, the lock's digest {plan.registration}"
    if lane.body["phase"] != plan.phase:
        return f"phase is {lane.body['phase']!r} in the folder of {plan.phase!r}"
    return ""


def budget_in_slots(plan: Plan, lane: Lane, measure: Measure) -> str:
    given, slots = lane.body["slots"], slots_of(plan, lane.body["cell"], lane.body["prompt_tokens"])
    return "" if given == slots else f"slots is {given}, its budget gives {slots}"


def excluded(plan: Plan, lane: Lane, measure: Measure) -> str:
    tokens, state = lane.body["prompt_tokens"], lane.body["state"]
    covered = plan.longest is not None and tokens > plan.longest
    if covered != (state == "excluded"):
        return f"state is {state!r} with {tokens} prompt_tokens; the lock's limit is {plan.longest}"
    if covered and lane.body["reason"] != (reason := f"prompt_tokens: {tokens}, above {plan.longest}"):
        return f"reason is {lane.body['reason']!r}, not {reason!r}"
    return ""


def nothing_without_an_end(plan: Plan, lane: Lane, measure: Measure) -> str:
    body, ok = lane.body, lane.body["state"] == "ok"
    if (body["trajectory"] is not None) != ok:
        return f"trajectory is {body['trajectory']} in the state {body['state']!r}"
    if ok:
        return ""
    said = (name for name in ("text", "tokens", "answer", "grade_reason") if body[name])
    return next((f"{name} is {body[name]!r} in the state {body['state']!r}" for name in said), "")


def stopped(plan: Plan, lane: Lane, measure: Measure) -> str:
    tokens, stop = lane.body["tokens"], lane.body["stop"]
    most = plan.tasks[lane.body["cell"]["task"]].max_new_tokens
    if stop is None or (tokens <= most and (tokens == most) == (stop == "length")):
        return ""
    return f"stop is {stop!r} after {tokens} tokens, of which the task allows {most}"


def told_by_text(plan: Plan, lane: Lane, measure: Measure) -> str:
    text, tokens = lane.body["text"], lane.body["tokens"]
    words = plan.words.get(lane.body["cell"]["model"])
    if not tokens:
        return f"tokens is 0, text has {len(text)} characters" if text else ""
    if words is None:
        return ""
    if words.apart:
        count = text.count(" ") + 1
        return "" if tokens == count else f"tokens is {tokens}, text has {count} words"
    if len(text) > tokens * (words.longest + 1):
        return f"tokens is {tokens}, text has {len(text)} characters"
    return ""


def thought(plan: Plan, lane: Lane, measure: Measure) -> str:
    body = lane.body
    if ("thought" in body) != (plan.thinking and body["state"] == "ok"):
        there = "is there" if "thought" in body else "is missing"
        asked = "asks" if plan.thinking else "does not ask"
        return f"thought {there} in the state {body['state']!r}; the lock {asked} for it"
    said, text, tokens = body.get("thought"), body["text"], body["tokens"]
    words = plan.words.get(body["cell"]["model"])
    if said is not None and said > tokens:
        return f"thought is {said} of {tokens} tokens"
    if said is not None and not (THINK in text or BOXED in text):
        return f"thought is {said}, text has no {THINK} and no {BOXED}"
    if "thought" in body and words is not None and words.apart and said != words.thought(text):
        return f"thought is {said}, text gives {words.thought(text)}"
    return ""


def no_answer(plan: Plan, lane: Lane, measure: Measure) -> str:
    if lane.body["grade"] == "no answer" and lane.body["answer"] is not None:
        return f"grade is 'no answer', answer is {lane.body['answer']!r}"
    return ""


def costs_of_a_state(plan: Plan, lane: Lane, measure: Measure) -> str:
    state, costs = lane.body["state"], lane.costs
    if not plan.batched and state != "ok":
        return ""  # older records of such lanes differ between versions
    for name, there in (("prefill_seconds", state != "excluded"), ("decode_seconds", state == "ok")):
        if (name in costs) != there:
            return f"costs.{name} is {costs.get(name, 'missing')} in the state {state!r}"
    lanes = None if plan.batched else len(plan.units[lane.place[0]].cells)
    if costs.get("lanes") != lanes:
        return f"costs.lanes is {costs.get('lanes', 'missing')}, not {lanes or 'missing'}"
    return ""


RELATIONS = (
    Relation(
        "registration",
        "A record names the lock of its folder and the phase whose folder it lies in.",
        ("registration", "phase"),
        "record",
        of_this_lock,
    ),
    Relation(
        "budget",
        '`slots` is what the budget gives: null for "full", a whole number as it is, of a share of '
        "`prompt_tokens` the least whole number that is not below it, of a share of the full cache's use "
        "what the lock says for the model and task, in bytes what it says for the model and arm.",
        ("cell.budget", "slots", "prompt_tokens"),
        "record",
        budget_in_slots,
    ),
    Relation(
        "exclusion",
        "A lane is excluded where its prompt has more tokens than the lock allows, and nowhere else; the "
        "reason says so.",
        ("state", "reason", "prompt_tokens"),
        "record",
        excluded,
    ),
    Relation(
        "state",
        "A lane has a trajectory if and only if it ended well; else it has no text, tokens, answer or "
        "reason of a grade.",
        ("state", "trajectory", "text", "tokens", "answer", "grade_reason"),
        "record",
        nothing_without_an_end,
    ),
    Relation(
        "stop",
        '`stop` is "length" if and only if `tokens` is all that the task allows; it is never more.',
        ("stop", "tokens", "cell.task"),
        "record",
        stopped,
    ),
    Relation(
        "text",
        "No tokens give no text. Of a model whose tokenizer is locked in the bundle, a text has as many "
        "words as `tokens` (where tokens are words), else no more characters than so many of its longest "
        "piece.",
        ("text", "tokens"),
        "record",
        told_by_text,
    ),
    Relation(
        "thought",
        "Where `generation.think_only` is locked, and nowhere else, a lane that ended well says how much of "
        "it was thinking: no more than `tokens`, and nothing without a mark in `text`. Of a model whose "
        "locked tokens are words, it is the place of the first mark.",
        ("thought", "tokens", "text"),
        "record",
        thought,
    ),
    Relation(
        "no answer",
        'The grade "no answer" goes with the answer null.',
        ("grade", "answer"),
        "record",
        no_answer,
    ),
    Relation(
        "costs",
        "A lane that was prefilled has the seconds of it, one that ended well those of decoding; `lanes` is "
        "there in records of before 2026-11-21 alone, and is then every cell of the problem.",
        ("costs.prefill_seconds", "costs.decode_seconds", "costs.lanes", "state"),
        "record",
        costs_of_a_state,
    ),
)
