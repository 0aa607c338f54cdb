"""The invariants of labelled traces: their fields, their occlusions and their values by token.

docs/records.md lists them. `protocol.instruments.anatomy.trace_file` checks that chains are intact and that the
choice precedes the testing half; the audit recomputes grades and the analysis.
"""

import math
import sys
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from protocol.evidence.invariants import invariant
from protocol.evidence.invariants.invariant import Subject, Violation, declare_invariant
from protocol.evidence.measurement_journal import Bodies
from protocol.formats.vocabulary import FULL, OF_FULL
from protocol.instruments.anatomy import slip, windows
from protocol.instruments.anatomy.fields import CORRECT, MEASURED, ORACLE, READINGS
from protocol.instruments.anatomy.trace_file import ExpectedTrace, assign_half

Body = Mapping[str, Any]
POSITION = ["position", None]
SCORING_PREFIX = "scoring:"
SIGNIFICANT_BITS = 12  # of the significand of a value
ROUNDED_BYTES = bytes(range(0, 256, 16))  # bytes whose low four bits are 0


class AnatomyContext(NamedTuple):
    """What the lines are compared with. content, digest: of the lock."""

    content: Mapping[str, Any]
    digest: str
    traces: Bodies
    expected: Sequence[ExpectedTrace]

    @property
    def anatomy(self) -> Mapping[str, Any]:
        anatomy: Mapping[str, Any] = self.content["protocol"]["content"]["anatomy"]
        return anatomy

    def has_query_outside(self, body: Body) -> bool:
        """Whether the question is fed after the context was compressed."""
        tasks = self.content["protocol"]["content"]["tasks"]
        return any(task["name"] == body["task"] and task["query"] == "outside" for task in tasks)


def find_violations(context: AnatomyContext, values: Callable[[Body], bytes]) -> list[Violation]:
    """Return the violated invariants. values: reads the values of a line; called once a line, and raises."""
    return invariant.find_violations(INVARIANTS, _iter_subjects(context, values))


def _iter_subjects(context: AnatomyContext, values: Callable[[Body], bytes]) -> Iterator[Subject]:
    for body in context.traces.bodies:
        yield Subject("line", [_format_trace(body)], (context, body))
        if "values" in body:
            yield Subject("values", [_format_trace(body)], (context, body, values(body)))
    yield Subject("file", [""], (context,))


@declare_invariant("lock", "line")
def check_lock(context: AnatomyContext, body: Body) -> str:
    """Each line belongs to this lock."""
    if body["registration"] != context.digest:
        return f"registration is {body['registration']}, but the lock's digest is {context.digest}"
    return ""


@declare_invariant("order", "file")
def check_order(context: AnatomyContext) -> str:
    """The lines are those that were registered, in this order: the choosing half of all models and tasks, then the
    testing half.
    """
    recorded = [
        _format_line(ExpectedTrace(*(body[name] for name in ExpectedTrace._fields))) for body in context.traces.bodies
    ]
    return invariant.describe_order(recorded, [*map(_format_line, context.expected)], "traces")


def _format_trace(body: Body) -> str:
    return f"{body['model']}/{body['task']}/{body['problem']}"


check_attempts = invariant.ordered_attempts(lambda context: context.traces.bodies, _format_trace)


@declare_invariant("development", "line")
def check_split(context: AnatomyContext, body: Body) -> str:
    """Each problem is in the development split."""
    if body["problem"] not in context.content["items"].get(body["task"], {}).get("dev", ()):
        return "is not in the development split"
    return ""


@declare_invariant("halves", "line")
def check_half(context: AnatomyContext, body: Body) -> str:
    """`half` follows from the MD5 of the problem's id."""
    if body["half"] != (expected := assign_half(body["problem"], context.content["items"].get(body["task"], {}))):
        return f"half is {body['half']!r}, but the MD5 of its id or its cluster gives {expected!r}"
    return ""


@declare_invariant("states", "line")
def check_state(context: AnatomyContext, body: Body) -> str:
    """`state` follows from the grade of the trace, its length, its control and the grades of its windows."""
    # In the order in which it is determined: the grade, the length, the control, the windows.
    state = body["state"]
    if state == "failed":
        return ""
    if (state == "wrong") != (body["grade"] != CORRECT):
        return f"state is {state!r}, which contradicts the grade {body['grade']!r}"
    if "span" in body:
        is_short = body["span"][1] - body["span"][0] < context.anatomy["window"]
        if state != "wrong" and (state == "short") != is_short:
            return f"state is {state!r}, which contradicts the span {body['span']}"
    if "control" in body and state not in ("wrong", "short"):
        is_changed = body["control"]["grade"] != body["grade"]
        if is_changed and state != "unreproduced":  # also the state if the text, fed again, has another grade
            return f"state is {state!r}, which contradicts a control that is graded {body['control']['grade']!r}"
    if state in MEASURED:
        has_flip = any(grade != CORRECT for *_, grade in body["windows"][context.anatomy["reading"]])
        if (state == "labelled") != has_flip:
            return f"state is {state!r}, but {'a' if has_flip else 'no'} window changed the grade"
    return ""


@declare_invariant("span", "line")
def check_span(context: AnatomyContext, body: Body) -> str:
    """`span` is the part of `tokens` that may be occluded; it never includes the last token."""
    if "span" not in body:
        return ""
    (start, stop), n, prompt = body["span"], body["tokens"], body["prompt_tokens"]
    if n < prompt or (context.anatomy["occlude"] == "prompt" and n != prompt):
        return f"tokens is {n}, but the prompt has {prompt} tokens"
    expected_start = prompt if context.anatomy["occlude"] == "reasoning" else 0
    # A question that is fed after the context, right before the answer, is not part of the span.
    is_end_valid = (
        stop <= n - 1 if context.has_query_outside(body) and n == prompt else stop == max(expected_start, n - 1)
    )
    if start != expected_start or stop < start or not is_end_valid:
        return f"span is [{start}, {stop}], which does not fit {n} tokens with a prompt of {prompt}"
    return ""


@declare_invariant("pieces", "line")
def check_pieces(context: AnatomyContext, body: Body) -> str:
    """There is one piece for each token."""
    if "pieces" in body and len(body["pieces"]) != body["tokens"]:
        return f"{len(body['pieces'])} pieces, which does not fit {body['tokens']} tokens"
    return ""


@declare_invariant("windows", "line")
def check_windows(context: AnatomyContext, body: Body) -> str:
    """In both readings, the windows follow from span, window and stride."""
    if body["state"] not in MEASURED:
        return ""
    span = windows.Span(body["tokens"], body["tokens"], *body["span"])
    ranges = windows.windows(span, context.anatomy["window"], context.anatomy["stride"])
    expected = [(positions.start, positions.stop) for positions in ranges]
    for reading in READINGS:
        recorded = [(start, stop) for start, stop, *_ in body["windows"][reading]]
        if recorded != expected:
            return (
                f"windows.{reading} has {len(recorded)} windows, which differ from the {len(expected)} that lie "
                f"on {body['span']}"
            )
    return ""


@declare_invariant("kept", "line")
def check_retained(context: AnatomyContext, body: Body) -> str:
    """Every evicting arm has one entry for every budget, and so have the labels."""
    # In the order of the protocol, then the oracle's.
    if body["state"] not in MEASURED:
        return ""
    budgets = context.content["protocol"]["content"]["budgets"]
    expected = [(arm, str(budget)) for arm in (*_evicting_arms(context), ORACLE) for budget in budgets]
    recorded = [(row["arm"], row["budget"]) for row in body["kept"]]
    if "sweep" in context.content["protocol"]["content"]:  # the lock does not have the order of the candidates
        expected, recorded = sorted(expected), sorted(recorded)
    if recorded != expected:
        return f"kept has {len(recorded)} entries, which differ from the {len(expected)} that are registered"
    if body["values"]["kept"] != len(recorded):
        return f"values.kept is {body['values']['kept']}, but kept has {len(recorded)} entries"
    return ""


def _evicting_arms(context: AnatomyContext) -> list[str]:
    """Return the arms in the order of the grid, which is that of the protocol (the keys of the lock are
    sorted); then the candidates of a sweep, which are in no cell.
    """
    cells, arms = context.content["grid"], context.content["protocol"]["content"]["arms"]
    full_arms = {cell[3] for cell in cells if cell[2] == FULL}
    full_arms |= {arm for arm, promise in context.content.get("promises", {}).items() if promise["fires"] == "never"}
    return [arm for arm in dict.fromkeys((*(cell[3] for cell in cells), *arms)) if arm in {*arms} - full_arms]


@declare_invariant("budget", "line")
def check_budget(context: AnatomyContext, body: Body) -> str:
    """`slots` follows from the budget and the prompt."""
    # With a question outside there are fewer: no field gives the tokens of the context alone.
    for row in body.get("kept", ()):
        expected, recorded = _budget_slots(context, body, row["arm"], row["budget"]), row["slots"]
        may_have_fewer = "." in row["budget"] and OF_FULL not in row["budget"] and context.has_query_outside(body)
        if expected is None or (recorded is None and "state" in row):
            continue
        if recorded is None or recorded > expected or (recorded < expected and not may_have_fewer):
            return f"{row['arm']} at {row['budget']} has {recorded} slots, but its budget gives {expected}"
    return ""


def _budget_slots(context: AnatomyContext, body: Body, arm: str, budget: str) -> int | None:
    """Return the slots of a budget; None where the lock does not give them: bytes for the oracle, which stores none."""
    if budget.endswith(OF_FULL):
        return int(context.content["full_use"][body["model"]][body["task"]]["slots"][budget])
    if "B" in budget or budget.startswith("bytes"):
        slots = context.content["slot_bytes"][body["model"]]["arms"].get(arm, {}).get("slots", {})
        return int(slots[budget]) if budget in slots else None
    return math.ceil(Decimal(budget) * body["prompt_tokens"]) if "." in budget else int(budget)


@declare_invariant("signals", "file")
def check_signals(context: AnatomyContext) -> str:
    """All traces of a model have the same signals, including the position, in addition to the scores of arms."""
    # The arms that have scores may differ, since an arm evicts only in traces that are long enough.
    first: dict[str, Any] = {}
    for body in context.traces.bodies:
        if "values" not in body:
            continue
        signals = body["values"]["signals"]
        model_signals = [signal for signal in signals if not signal[0].startswith(SCORING_PREFIX)]
        if first.setdefault(body["model"], model_signals) != model_signals:
            return f"{_format_trace(body)}: its signals differ from those of an earlier trace"
        if POSITION not in signals or len({tuple(signal) for signal in signals}) != len(signals):
            return f"{_format_trace(body)}: a signal occurs twice, or the position is missing"
        scored_arms = {
            signal[0].removeprefix(SCORING_PREFIX) for signal in signals if signal[0].startswith(SCORING_PREFIX)
        }
        if unknown_arms := sorted(scored_arms - {*_evicting_arms(context)}):
            return f"{_format_trace(body)}: {unknown_arms[0]!r} has scores, but is not an arm that evicts"
    return ""


@declare_invariant("rounding", "values")
def check_rounding(context: AnatomyContext, body: Body, value_bytes: bytes) -> str:
    """Values have twelve significant bits."""
    # The last twelve of the 24 significant bits of a float32 are 0: one byte, and half of the next.
    if value_bytes[0::4].strip(b"\0") or value_bytes[1::4].translate(None, ROUNDED_BYTES):
        return f"a value has more than {SIGNIFICANT_BITS} significant bits"
    return ""


@declare_invariant("shares", "values")
def check_shares(context: AnatomyContext, body: Body, value_bytes: bytes) -> str:
    """Each kept share is a share of the heads, and over all tokens the shares sum to at most the granted slots."""
    # Tokens that are fed after the eviction are kept besides. An arm without an eviction has NaN everywhere.
    n, signals = body["tokens"], len(body["values"]["signals"])
    if "kept" not in body:
        return "" if body["values"]["kept"] == 0 else "values.kept is not 0, but nothing was kept"
    later_tokens = n - body["span"][1] if context.has_query_outside(body) and n == body["prompt_tokens"] else 1
    for index, retained in enumerate(body["kept"], start=signals):
        row = _read_row(value_bytes, index, n)
        if all(map(math.isnan, row)):
            continue
        if not all(0 <= value <= 1 for value in row):
            return f"{retained['arm']} at {retained['budget']}: a share that was kept is not in [0, 1]"
        if (max_slots := retained["slots"]) is not None and sum(row) > (max_slots + later_tokens) * (
            1 + 2.0 ** (1 - SIGNIFICANT_BITS)
        ):
            return (
                f"{retained['arm']} at {retained['budget']}: kept {sum(row):.1f} slots in each head, but only "
                f"{max_slots} were granted"
            )
    return ""


@declare_invariant("oracle", "values")
def check_oracle(context: AnatomyContext, body: Body, value_bytes: bytes) -> str:
    """The tokens that the oracle kept follow from the windows of its trace."""
    # Before its eviction it retains as many tokens as were granted, and all later ones: `span` ends where that happens.
    if "windows" not in body:
        return ""
    n, signals, (_, event_end) = body["tokens"], len(body["values"]["signals"]), body["span"]
    window_rows = body["windows"][context.anatomy["reading"]]
    for index, retained in enumerate(body["kept"], start=signals):
        if retained["arm"] != ORACLE or retained["slots"] is None or "state" in retained:
            continue
        row = _read_row(value_bytes, index, n)
        if all(map(math.isnan, row)) and event_end <= retained["slots"]:
            continue  # everything fits: no eviction
        priorities = windows.oracle_priorities(event_end, window_rows, retained["slots"])
        oracle_positions = {
            *sorted(range(event_end), key=priorities.__getitem__)[max(0, event_end - retained["slots"]) :]
        }
        if [*row] != [float(position in oracle_positions or position >= event_end) for position in range(n)]:
            return f"{ORACLE} at {retained['budget']}: kept tokens other than those that its windows determine"
    return ""


@declare_invariant("slip", "line")
def check_slip(context: AnatomyContext, body: Body) -> str:
    """The results without dropped tokens of the thought are present if and only if `slip` is registered, together
    with their signals.
    """
    share = context.anatomy.get("slip")
    if share is None or "span" not in body or body["state"] not in (*MEASURED, "wrong"):
        return (
            "slip is present, but must be absent here"
            if "slip" in body or slip.ANSWER_ATTENTION in _names(body)
            else ""
        )
    count = int(Decimal(share) * (body["span"][1] - body["prompt_tokens"]))
    if body["state"] == "wrong" and body.get("control", {}).get("grade") != body["grade"]:
        count = 0  # without its control a wrong answer is not reproduced
    for name, is_there in (("slip", "slip" in body), (slip.ANSWER_ATTENTION, slip.ANSWER_ATTENTION in _names(body))):
        if is_there != (count > 0):
            return (
                f"{name} is {'present' if is_there else 'missing'}, although {count} tokens of the thought are dropped"
            )
    return ""


def _names(body: Body) -> list[str]:
    return [name for name, _ in body.get("values", {"signals": ()})["signals"]]


@declare_invariant("answer attention", "values")
def check_answer_attention(context: AnatomyContext, body: Body, value_bytes: bytes) -> str:
    """The answer's attention to the tokens of the thought is a share of all its attention."""
    if slip.ANSWER_ATTENTION not in _names(body):
        return ""
    index, n, prompt = _names(body).index(slip.ANSWER_ATTENTION), body["tokens"], body["prompt_tokens"]
    row = _read_row(value_bytes, index, n)
    if not all(map(math.isnan, row[:prompt])) or not all(0 <= value <= 1 for value in row[prompt:]):
        return (
            f"{slip.ANSWER_ATTENTION} must be missing for tokens of the prompt and a share from 0 to 1 for every "
            "later token"
        )
    if (total := sum(row[prompt:])) > 1 + 2.0 ** (1 - SIGNIFICANT_BITS):
        return f"{slip.ANSWER_ATTENTION} sums to {total:.3f}, more than all of an answer's attention"
    return ""


@declare_invariant("position", "values")
def check_position(context: AnatomyContext, body: Body, value_bytes: bytes) -> str:
    """The signal `position` gives the position of each token."""
    signals = body["values"]["signals"]
    if POSITION not in signals:
        return ""  # the invariant "signals" reports it
    row = _read_row(value_bytes, signals.index(POSITION), body["tokens"])
    if any(abs(value - position) > position * 2.0**-SIGNIFICANT_BITS for position, value in enumerate(row)):
        return "the signal named position is not the position"
    return ""


def _read_row(value_bytes: bytes, index: int, n: int) -> Sequence[float]:
    values = array("f", value_bytes[4 * index * n : 4 * (index + 1) * n])
    if array("H", b"\1\0")[0] != 1:
        values.byteswap()
    return values


def _format_line(trace: ExpectedTrace) -> str:
    return f"{trace.model}/{trace.task}/{trace.problem} to {trace.half}"


INVARIANTS = invariant.list_declared(sys.modules[__name__])
