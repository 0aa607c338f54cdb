"""The invariants of measured time and memory, which hold on every machine; docs/machines.md lists them."""

import math
import sys
from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

from protocol.evidence.invariants import invariant
from protocol.evidence.invariants.invariant import Subject, Violation, declare_invariant
from protocol.formats.vocabulary import FULL, OF_FULL
from protocol.instruments.cost.measurement_file import ExpectedLine, Measurement, Point

Body = Mapping[str, Any]
CLOCK_TOLERANCE = Decimal("0.05")  # seconds by which the two clocks of a phase may disagree, in addition to a tenth
PHASES = ("prefill", "decode")


class CostContext(NamedTuple):
    """What the lines of a measurement are compared with."""

    cost: Mapping[str, Any]
    registration: str
    measurement: Measurement
    expected: Sequence[ExpectedLine]
    is_cuda: bool


def find_violations(
    content: Mapping[str, Any], digest: str, measurement: Measurement, expected: Sequence[ExpectedLine]
) -> list[Violation]:
    """Return the violated invariants. content, digest: of the lock."""
    protocol = content["protocol"]["content"]
    is_cuda = protocol["generation"]["device"] == "cuda"
    context = CostContext(protocol["cost"], digest, measurement, expected, is_cuda)
    lines = (Subject("line", [_format_body(body)], (context, body)) for body in measurement.bodies)
    subjects = (*lines, Subject("file", [""], (context,)))
    return invariant.find_violations(INVARIANTS, subjects if measurement.machine else ())


@declare_invariant("lock", "file")
def check_lock(context: CostContext) -> str:
    """The file belongs to this lock."""
    if context.measurement.registration != context.registration:
        return f"registration is {context.measurement.registration}, but the lock's digest is {context.registration}"
    return ""


@declare_invariant("order", "file")
def check_order(context: CostContext) -> str:
    """The lines are those that were registered, in the order that the registered seed draws."""
    recorded = [_format_body(body) for body in context.measurement.bodies]
    return invariant.describe_order(recorded, [*map(_format_repetition, context.expected)], "repetitions")


def _format_body(body: Body) -> str:
    return _format_repetition(ExpectedLine(body["repetition"], Point(**body["point"])))


check_attempts = invariant.ordered_attempts(lambda context: context.measurement.bodies, _format_body)


@declare_invariant("same work", "file")
def check_same_work(context: CostContext) -> str:
    """All arms were fed the same prompts; in every line, the weights, the heads and the bytes of a slot are those
    of the model and the arm.
    """
    first: dict[tuple[str, tuple[object, ...]], object] = {}
    for body in context.measurement.bodies:
        point = body["point"]
        shared = {
            ("prompts", (point["model"], point["prompt_tokens"], point["lanes"])): body["prompts"],
            ("slots", (point["arm"], point["budget"], point["model"], point["prompt_tokens"])): body["slots"],
        }
        if memory := body.get("memory"):
            shared |= {
                ("memory.weights", (point["model"],)): memory["weights"],
                ("memory.heads", (point["model"],)): memory["heads"],
                ("memory.slot", (point["model"], point["arm"])): memory["slot"],
            }
        for (field, key), value in shared.items():
            expected = first.setdefault((field, key), value)
            if expected != value:
                return f"{_format_body(body)}: {field} is {value}, but {expected} in an earlier line"
    return ""


@declare_invariant("budget", "line")
def check_budget(context: CostContext, body: Body) -> str:
    """`slots` follows from the budget and the prompt."""
    point, recorded_slots = body["point"], body["slots"]
    tokens, budget = point["prompt_tokens"], point["budget"]
    if budget == FULL:
        expected_slots = None
    elif budget.endswith(OF_FULL):
        full_slots = tokens + context.cost["new_tokens"] - 1
        expected_slots = math.ceil(Fraction(budget.removesuffix(OF_FULL)) * full_slots)
    elif "B" in budget or budget.startswith("bytes"):  # in bytes: `same work` checks the bytes of a slot
        return "" if recorded_slots is not None else f"slots is null although the budget is {budget}"
    else:
        expected_slots = math.ceil(Decimal(budget) * tokens) if "." in budget else int(budget)
    return (
        "" if recorded_slots == expected_slots else f"slots is {recorded_slots}, but its budget gives {expected_slots}"
    )


@declare_invariant("tokens", "line")
def check_tokens(context: CostContext, body: Body) -> str:
    """`tokens` counts the tokens of all lanes: those of the prompts, or all new ones except the last."""
    point = body["point"]
    fed = {"prefill": point["prompt_tokens"], "decode": context.cost["new_tokens"] - 1}
    for phase, fed_tokens in fed.items() if "prefill" in body else ():
        if body[phase]["tokens"] != (all_lanes := point["lanes"] * fed_tokens):
            return f"{phase}.tokens is {body[phase]['tokens']}, but {point['lanes']} lanes feed {all_lanes}"
    return ""


@declare_invariant("rates", "line")
def check_rates(context: CostContext, body: Body) -> str:
    """`tokens_per_second` is `tokens` divided by `seconds`, which are above 0."""
    for phase in PHASES if "prefill" in body else ():
        timing = body[phase]
        if not (seconds := Decimal(timing["seconds"])):
            return f"{phase}.seconds is 0, which no clock can measure"
        if timing["tokens_per_second"] != (expected := f"{Decimal(timing['tokens']) / seconds:.3f}"):
            return (
                f"{phase}.tokens_per_second is {timing['tokens_per_second']}, but tokens divided by seconds are "
                f"{expected}"
            )
    return ""


@declare_invariant("clocks", "line")
def check_cpu_seconds(context: CostContext, body: Body) -> str:
    """The process did not use more processor time than all cores together had."""
    # The two clocks are read one after the other.
    for phase in PHASES if "prefill" in body else ():
        timing = body[phase]
        max_seconds = context.measurement.machine["cores"] * (
            Decimal(timing["seconds"]) * Decimal("1.1") + CLOCK_TOLERANCE
        )
        if Decimal(timing["cpu_seconds"]) > max_seconds:
            cores = context.measurement.machine["cores"]
            return f"{phase}.cpu_seconds is {timing['cpu_seconds']}, but {cores} cores had {timing['seconds']} seconds"
    return ""


@declare_invariant("slots", "line")
def check_slots(context: CostContext, body: Body) -> str:
    """The lanes held at most the slots of their prompts, and the full cache held all of them. The allocated bytes
    have room for these slots, and at their peak for all slots that the full cache has at the end.
    """
    if (memory := body.get("memory")) is None:
        return ""
    point = body["point"]
    prompt_slots = point["lanes"] * memory["heads"] * point["prompt_tokens"]
    if memory["held"] > prompt_slots or (point["budget"] == FULL and memory["held"] != prompt_slots):
        return f"memory.held is {memory['held']}, but the prompts have {prompt_slots} slots"
    if memory["room"] < (min_bytes := memory["held"] * memory["slot"]):
        return f"memory.room is {memory['room']}, but the slots take {min_bytes} bytes"
    final_slots = prompt_slots + point["lanes"] * memory["heads"] * (context.cost["new_tokens"] - 1)
    min_bytes = final_slots * memory["slot"] if point["budget"] == FULL else memory["room"]
    if memory["room_peak"] < min_bytes:
        return f"memory.room_peak is {memory['room_peak']}, but the slots take {min_bytes} bytes"
    return ""


@declare_invariant("peaks", "line")
def check_peaks(context: CostContext, body: Body) -> str:
    """The peaks belong to the device that ran. No peak is below the bytes of the slots (on CUDA: of weights and
    slots), and no more memory is allocated than reserved.
    """
    if (memory := body.get("memory")) is None:
        return ""
    slot_bytes = memory["held"] * memory["slot"]
    for phase in PHASES:
        timing = body[phase]
        if ("allocated_peak" in timing) != context.is_cuda or ("reserved_peak" in timing) != context.is_cuda:
            presence = "missing" if context.is_cuda else "there"
            return f"{phase}: peaks of CUDA are {presence} on {'CUDA' if context.is_cuda else 'a CPU'}"
        if context.is_cuda:
            if timing["allocated_peak"] < (min_bytes := memory["weights"] + slot_bytes):
                return f"{phase}.allocated_peak is {timing['allocated_peak']}, but weights and slots take {min_bytes}"
            if timing["reserved_peak"] < timing["allocated_peak"]:
                return f"{phase}.reserved_peak is {timing['reserved_peak']}, but {timing['allocated_peak']} were in use"
        elif "rss_peak" in timing and timing["rss_peak"] < slot_bytes:
            return f"{phase}.rss_peak is {timing['rss_peak']}, but the slots take {slot_bytes} bytes"
    return ""


def _format_repetition(repetition: ExpectedLine) -> str:
    return f"repetition {repetition.repetition} of {'/'.join(map(str, repetition.point))}"


INVARIANTS = invariant.list_declared(sys.modules[__name__])
