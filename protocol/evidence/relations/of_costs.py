"""The invariants of measured time and memory, which hold on every machine; docs/cost.md lists them."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

from protocol.evidence.run.costs import FULL, Due, Measurement, Point

__all__ = ["RELATIONS", "Relation", "broken"]

Body = Mapping[str, Any]
OF_FULL = " of full"  # suffix of a budget that is a share of what the full cache holds at the end
TICK = Decimal("0.05")  # seconds by which the two clocks of a phase may disagree, in addition to a tenth
PHASES = ("prefill", "decode")


class Asked(NamedTuple):
    """What the lines of a measurement are compared with."""

    cost: Mapping[str, Any]
    registration: str
    one: Measurement
    due: Sequence[Due]
    cuda: bool


class Relation(NamedTuple):
    """A sentence that is true of every honest measurement, with its name. Exactly one check is set:
    check_line returns what is wrong with a line, check_file what is wrong with all of them.
    """

    name: str
    says: str
    of_line: Callable[[Asked, Body], str] | None = None
    of_file: Callable[[Asked], str] | None = None


def broken(content: Mapping[str, Any], digest: str, one: Measurement, due: Sequence[Due]) -> Iterator[str]:
    """Yield one message for each invariant that is violated, with the first repetition that violates it.
    content, digest: of the lock.
    """
    protocol = content["protocol"]["content"]
    cuda = protocol["generation"]["device"] == "cuda"
    asked = Asked(protocol["cost"], digest, one, due, cuda)
    for relation in RELATIONS if one.machine else ():
        if relation.of_file is not None:
            if says := relation.of_file(asked):
                yield f"{relation.name}: {says}"
            continue
        assert relation.of_line is not None
        told = ((body, relation.of_line(asked, body)) for body in one.bodies)
        if first := next(((body, says) for body, says in told if says), None):
            body, says = first
            yield f"{relation.name}: {_place(body)}: {says}"


def of_this_lock(asked: Asked) -> str:
    if asked.one.registration != asked.registration:
        return f"registration is {asked.one.registration}, the lock's digest {asked.registration}"
    return ""


def as_registered(asked: Asked) -> str:
    for number, (body, due) in enumerate(zip(asked.one.bodies, asked.due, strict=False), start=1):
        if (body["repetition"], body["point"]) != (due.repetition, due.point._asdict()):
            return f"line {number} is {_place(body)}, where {_named(due)} is due"
    if len(asked.one.bodies) > len(asked.due):
        return f"{len(asked.one.bodies)} repetitions, and {len(asked.due)} are registered"
    return ""


def attempts_in_order(asked: Asked) -> str:
    for before, after in pairwise(asked.one.bodies):
        if after["attempt"] < before["attempt"]:
            return f"{_place(after)}: attempt {after['attempt']} after a line of attempt {before['attempt']}"
    return ""


def same_work(asked: Asked) -> str:
    """All lines have one prompt for each length and number of lanes, and one model for each name."""
    first: dict[tuple[str, tuple[object, ...]], object] = {}
    for body in asked.one.bodies:
        point = body["point"]
        alike = {
            ("prompts", (point["model"], point["prompt_tokens"], point["lanes"])): body["prompts"],
            ("slots", (point["arm"], point["budget"], point["model"], point["prompt_tokens"])): body["slots"],
        }
        if memory := body.get("memory"):
            alike |= {
                ("memory.weights", (point["model"],)): memory["weights"],
                ("memory.heads", (point["model"],)): memory["heads"],
                ("memory.slot", (point["model"], point["arm"])): memory["slot"],
            }
        for (field, of), value in alike.items():
            other = first.setdefault((field, of), value)
            if other != value:
                return f"{_place(body)}: {field} is {value}, of an earlier line {other}"
    return ""


def budgets(asked: Asked, body: Body) -> str:
    point, given = body["point"], body["slots"]
    tokens, budget = point["prompt_tokens"], point["budget"]
    if budget == FULL:
        slots = None
    elif budget.endswith(OF_FULL):
        used = tokens + asked.cost["new_tokens"] - 1
        slots = math.ceil(Fraction(budget.removesuffix(OF_FULL)) * used)
    elif "B" in budget or budget.startswith("bytes"):  # in bytes: `same work` checks the bytes of a slot
        return "" if given is not None else f"slots is null at the budget {budget}"
    else:
        slots = math.ceil(Decimal(budget) * tokens) if "." in budget else int(budget)
    return "" if given == slots else f"slots is {given}, its budget gives {slots}"


def tokens(asked: Asked, body: Body) -> str:
    point = body["point"]
    fed = {"prefill": point["prompt_tokens"], "decode": asked.cost["new_tokens"] - 1}
    for phase, each in fed.items() if "prefill" in body else ():
        if body[phase]["tokens"] != (all_lanes := point["lanes"] * each):
            return f"{phase}.tokens is {body[phase]['tokens']}, {point['lanes']} lanes feed {all_lanes}"
    return ""


def rates(asked: Asked, body: Body) -> str:
    for phase in PHASES if "prefill" in body else ():
        one = body[phase]
        if not (seconds := Decimal(one["seconds"])):
            return f"{phase}.seconds is 0: no clock saw that"
        if one["tokens_per_second"] != (due := f"{Decimal(one['tokens']) / seconds:.3f}"):
            return f"{phase}.tokens_per_second is {one['tokens_per_second']}, tokens over seconds are {due}"
    return ""


def clocks(asked: Asked, body: Body) -> str:
    """Cores cannot work longer than the clock ran; the two clocks are read one after the other."""
    for phase in PHASES if "prefill" in body else ():
        one = body[phase]
        most = asked.one.machine["cores"] * (Decimal(one["seconds"]) * Decimal("1.1") + TICK)
        if Decimal(one["cpu_seconds"]) > most:
            cores = asked.one.machine["cores"]
            return f"{phase}.cpu_seconds is {one['cpu_seconds']}, {cores} cores had {one['seconds']} seconds"
    return ""


def slots_held(asked: Asked, body: Body) -> str:
    if (memory := body.get("memory")) is None:
        return ""
    point = body["point"]
    every = point["lanes"] * memory["heads"] * point["prompt_tokens"]
    if memory["held"] > every or (point["budget"] == FULL and memory["held"] != every):
        return f"memory.held is {memory['held']}, the prompts have {every} slots"
    if memory["room"] < (least := memory["held"] * memory["slot"]):
        return f"memory.room is {memory['room']}, the slots take {least} bytes"
    last = every + point["lanes"] * memory["heads"] * (asked.cost["new_tokens"] - 1)
    least = last * memory["slot"] if point["budget"] == FULL else memory["room"]
    if memory["room_peak"] < least:
        return f"memory.room_peak is {memory['room_peak']}, the slots take {least} bytes"
    return ""


def peaks(asked: Asked, body: Body) -> str:
    if (memory := body.get("memory")) is None:
        return ""
    slots = memory["held"] * memory["slot"]
    for phase in PHASES:
        one = body[phase]
        if ("allocated_peak" in one) != asked.cuda or ("reserved_peak" in one) != asked.cuda:
            there = "missing" if asked.cuda else "there"
            return f"{phase}: peaks of CUDA are {there} on {'CUDA' if asked.cuda else 'a CPU'}"
        if asked.cuda:
            if one["allocated_peak"] < (least := memory["weights"] + slots):
                return f"{phase}.allocated_peak is {one['allocated_peak']}, weights and slots take {least}"
            if one["reserved_peak"] < one["allocated_peak"]:
                return f"{phase}.reserved_peak is {one['reserved_peak']}, {one['allocated_peak']} were in use"
        elif "rss_peak" in one and one["rss_peak"] < slots:
            return f"{phase}.rss_peak is {one['rss_peak']}, the slots take {slots} bytes"
    return ""


def _place(body: Body) -> str:
    return _named(Due(body["repetition"], Point(**body["point"])))


def _named(due: Due) -> str:
    return f"repetition {due.repetition} of {'/'.join(map(str, due.point))}"


RELATIONS = (
    Relation("lock", "The file is of this lock.", of_file=of_this_lock),
    Relation(
        "order",
        "Line for line it is what was registered, in the order that the registered seed draws.",
        of_file=as_registered,
    ),
    Relation(
        "attempts",
        "The attempt of a line is never before that of the line before.",
        of_file=attempts_in_order,
    ),
    Relation(
        "same work",
        "All arms were fed the same prompts; weights, heads and what a slot takes are those of the model and "
        "the arm, in every line.",
        of_file=same_work,
    ),
    Relation("budget", "`slots` is what the budget gives for the prompt.", of_line=budgets),
    Relation(
        "tokens",
        "`tokens` are those of all lanes: the prompt's, and all new ones but the last.",
        of_line=tokens,
    ),
    Relation(
        "rates", "`tokens_per_second` is `tokens` over `seconds`, which are more than none.", of_line=rates
    ),
    Relation("clocks", "The process worked no longer than all cores had time.", of_line=clocks),
    Relation(
        "slots",
        "The lanes held at most their prompts, and the full cache all of them; the bytes that were allocated "
        "hold these slots, and at their peak all that the full cache has at the end.",
        of_line=slots_held,
    ),
    Relation(
        "peaks",
        "Peaks are there of the device that ran; no peak is below the bytes of the slots (CUDA: of weights "
        "and slots), and no more is allocated than reserved.",
        of_line=peaks,
    ),
)
