"""The invariants of labelled traces: their fields, their occlusions and their values by token.

docs/records.md lists them. `protocol.evidence.run.anatomies` checks that chains are intact and that the
choice precedes the testing half; the audit recomputes grades and the analysis.
"""

import math
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any, NamedTuple

from protocol.evidence.run.anatomies import Due, Traces, half_of
from protocol.evidence.run.anatomy_fields import MEASURED, READINGS

__all__ = ["ORACLE", "RELATIONS", "Asked", "Relation", "broken", "windows"]

Body = Mapping[str, Any]
CORRECT = "correct"
ORACLE = "oracle-occlusion"
FULL, OF_FULL = "full", " of full"
POSITION = ["position", None]
SCORING = "scoring:"
SINKS = 4  # tokens without a window that the oracle retains at the beginning
BITS = 12  # of the significand of a value
MULTIPLES = bytes(range(0, 256, 16))  # bytes whose low four bits are 0


class Asked(NamedTuple):
    """What the lines are compared with. content, digest: of the lock."""

    content: Mapping[str, Any]
    digest: str
    traces: Traces
    due: Sequence[Due]

    @property
    def own(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.content["protocol"]["content"]["anatomy"]
        return found

    def asks_outside(self, body: Body) -> bool:
        """Whether the question is fed after the context was compressed."""
        tasks = self.content["protocol"]["content"]["tasks"]
        return any(task["name"] == body["task"] and task["query"] == "outside" for task in tasks)


class Relation(NamedTuple):
    """A sentence that is true of every honest anatomy, with its name. Exactly one check is set: check_line
    returns what is wrong with a line, check_file with all of them, check_values with a line and its values.
    """

    name: str
    says: str
    of_line: Callable[[Asked, Body], str] | None = None
    of_file: Callable[[Asked], str] | None = None
    of_values: Callable[[Asked, Body, bytes], str] | None = None


def broken(asked: Asked, values: Callable[[Body], bytes]) -> Iterator[str]:
    """Yield one message for each invariant that is violated, with the first trace that violates it. values:
    reads the values of a line; called once a line. Raises as `values` does.
    """
    first: dict[str, str] = {}
    for body in asked.traces.bodies:
        for relation in RELATIONS:
            of_line = relation.of_line if relation.name not in first else None
            if of_line is not None and (said := of_line(asked, body)):
                first[relation.name] = f"{_place(body)}: {said}"
        if "values" in body:
            held = values(body)
            for relation in RELATIONS:
                of_values = relation.of_values if relation.name not in first else None
                if of_values is not None and (said := of_values(asked, body, held)):
                    first[relation.name] = f"{_place(body)}: {said}"
    for relation in RELATIONS:
        if relation.of_file is not None and (said := relation.of_file(asked)):
            first[relation.name] = said
    yield from (f"{one.name}: {first[one.name]}" for one in RELATIONS if one.name in first)


def windows(span: Sequence[int], window: int, stride: int) -> list[tuple[int, int]]:
    """Return [start, stop) of each window: one every `stride` tokens from the beginning, and one that ends
    with the span; none if the span is shorter than a window.
    """
    start, stop = span
    if (last := stop - window) < start:
        return []
    return [(at, at + window) for at in (*range(start, last, stride), last)]


def of_this_lock(asked: Asked, body: Body) -> str:
    if body["registration"] != asked.digest:
        return f"registration is {body['registration']}, the lock's digest {asked.digest}"
    return ""


def as_registered(asked: Asked) -> str:
    for number, (body, due) in enumerate(zip(asked.traces.bodies, asked.due, strict=False), start=1):
        if Due(body["half"], body["model"], body["task"], body["problem"]) != due:
            return f"line {number} is {_place(body)}, where {'/'.join(due[1:])} is due to {due.half}"
    if len(asked.traces.bodies) > len(asked.due):
        return f"{len(asked.traces.bodies)} traces, and {len(asked.due)} are registered"
    return ""


def attempts_in_order(asked: Asked) -> str:
    for before, after in pairwise(asked.traces.bodies):
        if after["attempt"] < before["attempt"]:
            return f"{_place(after)}: attempt {after['attempt']} after a line of attempt {before['attempt']}"
    return ""


def halves(asked: Asked, body: Body) -> str:
    if body["half"] != (own := half_of(body["problem"], asked.content["items"].get(body["task"], {}))):
        return f"half is {body['half']!r}, the MD5 of its id or its cluster says {own!r}"
    return ""


def development(asked: Asked, body: Body) -> str:
    if body["problem"] not in asked.content["items"].get(body["task"], {}).get("dev", ()):
        return "is not of the development split"
    return ""


def states(asked: Asked, body: Body) -> str:
    """Check the state in the order in which it is determined: the grade, the length, the control, the
    windows.
    """
    state = body["state"]
    if state == "failed":
        return ""
    if (state == "wrong") != (body["grade"] != CORRECT):
        return f"state is {state!r} with the grade {body['grade']!r}"
    if "span" in body:
        short = body["span"][1] - body["span"][0] < asked.own["window"]
        if state != "wrong" and (state == "short") != short:
            return f"state is {state!r} with the span {body['span']}"
    if "control" in body and state not in ("wrong", "short"):
        other = body["control"]["grade"] != body["grade"]
        if other and state != "unreproduced":  # also the state if the text, fed again, has another grade
            return f"state is {state!r} with a control that is {body['control']['grade']!r}"
    if state in MEASURED:
        changed = any(grade != CORRECT for *_, grade in body["windows"][asked.own["reading"]])
        if (state == "labelled") != changed:
            return f"state is {state!r}, and {'a' if changed else 'no'} window changed the grade"
    return ""


def spans(asked: Asked, body: Body) -> str:
    if "span" not in body:
        return ""
    (start, stop), n, prompt = body["span"], body["tokens"], body["prompt_tokens"]
    if n < prompt or (asked.own["occlude"] == "prompt" and n != prompt):
        return f"tokens are {n}, the prompt has {prompt}"
    begins = prompt if asked.own["occlude"] == "reasoning" else 0
    # A question that is fed after the context, right before the answer, is not part of the span.
    ends = stop <= n - 1 if asked.asks_outside(body) and n == prompt else stop == max(begins, n - 1)
    if start != begins or stop < start or not ends:
        return f"span is [{start}, {stop}] of {n} tokens after a prompt of {prompt}"
    return ""


def pieces(asked: Asked, body: Body) -> str:
    if "pieces" in body and len(body["pieces"]) != body["tokens"]:
        return f"{len(body['pieces'])} pieces of {body['tokens']} tokens"
    return ""


def as_windows(asked: Asked, body: Body) -> str:
    if body["state"] not in MEASURED:
        return ""
    due = windows(body["span"], asked.own["window"], asked.own["stride"])
    for reading in READINGS:
        found = [(start, stop) for start, stop, *_ in body["windows"][reading]]
        if found != due:
            return f"windows.{reading} has {len(found)} windows, {len(due)} others lie on {body['span']}"
    return ""


def kept_rows(asked: Asked, body: Body) -> str:
    """There is one row for every evicting arm at every budget, in the order of the protocol, then the
    oracle's.
    """
    if body["state"] not in MEASURED:
        return ""
    budgets = asked.content["protocol"]["content"]["budgets"]
    due = [(arm, str(budget)) for arm in (*_evicting(asked), ORACLE) for budget in budgets]
    found = [(one["arm"], one["budget"]) for one in body["kept"]]
    if "sweep" in asked.content["protocol"]["content"]:  # the lock does not have the order of the candidates
        due, found = sorted(due), sorted(found)
    if found != due:
        return f"kept has {len(found)} entries, {len(due)} others are registered"
    if body["values"]["kept"] != len(found):
        return f"values.kept is {body['values']['kept']}, kept has {len(found)} entries"
    return ""


def _evicting(asked: Asked) -> list[str]:
    """Return the arms in the order of the grid, which is that of the protocol (the keys of the lock are
    sorted); then the candidates of a sweep, which are in no cell.
    """
    cells, arms = asked.content["grid"], asked.content["protocol"]["content"]["arms"]
    whole = {cell[3] for cell in cells if cell[2] == FULL}
    return [arm for arm in dict.fromkeys((*(cell[3] for cell in cells), *arms)) if arm in {*arms} - whole]


def budgets(asked: Asked, body: Body) -> str:
    """Check the slots of each row. With a question outside there are fewer: no field gives the tokens of the
    context alone.
    """
    for one in body.get("kept", ()):
        due, given = _slots(asked, body, one["arm"], one["budget"]), one["slots"]
        fewer = "." in one["budget"] and OF_FULL not in one["budget"] and asked.asks_outside(body)
        if due is None or (given is None and "state" in one):
            continue
        if given is None or given > due or (given < due and not fewer):
            return f"{one['arm']} at {one['budget']} has {given} slots, its budget gives {due}"
    return ""


def _slots(asked: Asked, body: Body, arm: str, budget: str) -> int | None:
    """Return the slots of a budget; None where the lock does not give them: bytes for the oracle, which
    stores nothing.
    """
    if budget.endswith(OF_FULL):
        return int(asked.content["full_use"][body["model"]][body["task"]]["slots"][budget])
    if "B" in budget or budget.startswith("bytes"):
        own = asked.content["slot_bytes"][body["model"]]["arms"].get(arm, {}).get("slots", {})
        return int(own[budget]) if budget in own else None
    return math.ceil(Decimal(budget) * body["prompt_tokens"]) if "." in budget else int(budget)


def same_signals(asked: Asked) -> str:
    """Check that all traces of a model have the same signals. The arms that have scores may differ, since an
    arm evicts only in traces that are long enough.
    """
    first: dict[str, Any] = {}
    for body in asked.traces.bodies:
        if "values" not in body:
            continue
        own = body["values"]["signals"]
        measured = [one for one in own if not one[0].startswith(SCORING)]
        if first.setdefault(body["model"], measured) != measured:
            return f"{_place(body)}: its signals are not those of an earlier trace"
        if POSITION not in own or len({tuple(one) for one in own}) != len(own):
            return f"{_place(body)}: a signal stands twice, or the position is missing"
        scored = {one[0].removeprefix(SCORING) for one in own if one[0].startswith(SCORING)}
        if strange := sorted(scored - {*_evicting(asked)}):
            return f"{_place(body)}: {strange[0]!r} scores, and is no arm that evicts"
    return ""


def rounded(asked: Asked, body: Body, held: bytes) -> str:
    """The last twelve of the 24 significant bits of a float32 are 0: one byte, and half of the next."""
    if held[0::4].strip(b"\0") or held[1::4].translate(None, MULTIPLES):
        return f"a value has more than {BITS} significant bits"
    return ""


def shares(asked: Asked, body: Body, held: bytes) -> str:
    """Each token is retained by a share of the heads of all layers; the sum over tokens is at most the
    granted slots, plus the tokens that are fed after the eviction. An arm without an eviction has NaN
    everywhere.
    """
    n, signals = body["tokens"], len(body["values"]["signals"])
    after = n - body["span"][1] if asked.asks_outside(body) and n == body["prompt_tokens"] else 1
    for place, one in enumerate(body["kept"], start=signals):
        row = _row(held, place, n)
        if all(map(math.isnan, row)):
            continue
        if not all(0 <= value <= 1 for value in row):
            return f"{one['arm']} at {one['budget']}: a share that was kept is not in [0, 1]"
        if (most := one["slots"]) is not None and sum(row) > (most + after) * (1 + 2.0 ** (1 - BITS)):
            return f"{one['arm']} at {one['budget']}: kept {sum(row):.1f} slots a head, {most} were granted"
    return ""


def oracle(asked: Asked, body: Body, held: bytes) -> str:
    """Check that the oracle's values follow from the windows of the same trace. Before its eviction it
    retains as many tokens as were granted, and all later tokens: `span` ends where the eviction happens.
    """
    n, signals, (_, event) = body["tokens"], len(body["values"]["signals"]), body["span"]
    over: list[int | None] = [None] * event
    for start, stop, _, grade in body["windows"][asked.own["reading"]]:
        for at in range(start, stop):
            over[at] = (over[at] or 0) + (grade != CORRECT)
    for place, one in enumerate(body["kept"], start=signals):
        if one["arm"] != ORACLE or one["slots"] is None or "state" in one:
            continue
        row = _row(held, place, n)
        if all(map(math.isnan, row)) and event <= one["slots"]:
            continue  # everything fits: no eviction
        kept = _most_flipped(over, one["slots"])
        if [*row] != [float(at in kept or at >= event) for at in range(n)]:
            return f"{ORACLE} at {one['budget']}: kept other tokens than those that its windows say"
    return ""


def _most_flipped(over: Sequence[int | None], slots: int) -> set[int]:
    """Return the positions that `occlusion.windows.priorities` ranks first: those in most windows that
    changed the grade; then those that no window covers, only the first SINK_TOKENS of them if not all fit;
    then the latest.
    """
    untested = [at for at, count in enumerate(over) if count is None]
    if len(untested) > slots - sum(map(bool, over)):
        untested = [at for at in untested if at < SINKS]
    worth = [
        1.0 * (at in untested) if count is None else 1.0 + count if count else 0.0
        for at, count in enumerate(over)
    ]
    order = sorted(range(len(over)), key=lambda at: (worth[at], at))
    return {*order[max(0, len(order) - slots) :]}


def positions(asked: Asked, body: Body, held: bytes) -> str:
    own = body["values"]["signals"]
    if POSITION not in own:
        return ""  # the invariant "signals" reports it
    row = _row(held, own.index(POSITION), body["tokens"])
    if any(abs(value - at) > at * 2.0**-BITS for at, value in enumerate(row)):
        return "the signal named position is not the position"
    return ""


def _row(held: bytes, place: int, n: int) -> Sequence[float]:
    row = array("f", held[4 * place * n : 4 * (place + 1) * n])
    if array("H", b"\1\0")[0] != 1:
        row.byteswap()
    return row


def _place(body: Body) -> str:
    return f"{body['model']}/{body['task']}/{body['problem']}"


RELATIONS = (
    Relation("lock", "Each line is of this lock.", of_line=of_this_lock),
    Relation(
        "order",
        "Line for line it is what was registered: the choosing half of all models and tasks, then the other.",
        of_file=as_registered,
    ),
    Relation(
        "attempts",
        "The attempt of a line is never before that of the line before.",
        of_file=attempts_in_order,
    ),
    Relation("development", "Each problem is of the development split.", of_line=development),
    Relation("halves", "`half` follows from the MD5 of the problem's id.", of_line=halves),
    Relation(
        "states",
        "`state` follows from the grade of the trace, its length, its control and the grades of its windows.",
        of_line=states,
    ),
    Relation("span", "`span` is what may be occluded of `tokens`, never the last of them.", of_line=spans),
    Relation("pieces", "There is one piece a token.", of_line=pieces),
    Relation(
        "windows", "Windows lie where span, window and stride put them, in both readings.", of_line=as_windows
    ),
    Relation(
        "kept",
        "Every arm that evicts is asked once at every budget, and so are the labels.",
        of_line=kept_rows,
    ),
    Relation("budget", "`slots` is what the budget gives for the prompt.", of_line=budgets),
    Relation(
        "signals",
        "All traces of a model have the same signals, the position among them, beside the scores of arms.",
        of_file=same_signals,
    ),
    Relation("rounding", "Values have twelve significant bits.", of_values=rounded),
    Relation(
        "shares",
        "What is kept is a share of the heads, over all tokens at most what was granted.",
        of_values=shares,
    ),
    Relation("oracle", "What the oracle kept is what the windows of its trace say.", of_values=oracle),
    Relation("position", "The signal `position` is the position.", of_values=positions),
)
