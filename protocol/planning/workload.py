"""The workload of a study: lanes, slots, prompts and the expected lengths of answers."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from policies import AttentionSignal, FedSignal, HiddenSignal, Policy
from protocol.engine import Lane, Prompt, Request
from protocol.engine.max_concurrent import most_slots, slot_bytes
from protocol.evidence.refusals import BadInput
from protocol.evidence.run import records
from protocol.locked.planned import Planned
from protocol.models import load
from protocol.models.load import DTYPES
from protocol.plan import grid
from protocol.plan.design import Design, Task
from protocol.plan.slot_bytes import Widths
from protocol.planning import shapes
from protocol.planning.arithmetic import QUANTUM, Kind, Shape
from protocol.tasks import door, prompting

__all__ = ["Given", "Load", "loads", "phases"]

CHARACTERS = 4  # per token, without a tokenizer
AROUND = 32  # tokens of a chat template
SPLIT = {"probe": "dev", "confirm": "confirm"}


class Given(NamedTuple):
    """Values from the user for what is unknown here. shapes: files, by model. prompt, answer: tokens."""

    shapes: Mapping[str, Path]
    prompt: int | None = None
    answer: int | None = None


class Load(NamedTuple):
    """The work of one phase, model and task. kinds: the lanes of a problem, in order. prompt, longest:
    mean and maximum tokens of a prompt. answers: tokens of each kind of lane, problem by problem.
    watched: attention rows that signals read; signals: how many signals. watches, raw: whether they
    read attention, and logits, of new tokens. rereads: further prefills of a prompt by lanes that need
    their own. assumed: sentences.
    """

    phase: str
    model: str
    task: str
    config: Any
    shape: Shape
    kinds: tuple[Kind, ...]
    arms: Mapping[str, tuple[Policy, int]]
    problems: int
    together: int
    prompt: int
    longest: int
    limit: int
    answers: tuple[tuple[int, ...], ...]
    watched: int
    signals: int
    watches: bool
    raw: bool
    again: int
    assumed: tuple[str, ...]


def phases(protocol: Design) -> dict[str, Design]:
    """Return the designs of probe and confirm; with a sweep, confirm uses the first candidate as winner."""
    sweep = protocol.sweep
    confirmed = protocol if sweep is None else protocol.confirmed(sweep.candidates[0])
    return {"probe": protocol.probed(), "confirm": confirmed}


def loads(planned: Planned, items: Mapping[str, Any], given: Given) -> list[Load]:
    """Return the loads by phase, model and task, in running order. items: the problems of each available
    task. Raises BadInput for an unknown quantity that the user has not set.
    """
    protocol, found = planned.protocol, []
    known = {}
    for model in protocol.models:
        own = shapes.found(model, planned.home, given.shapes.get(model))
        known[model] = own, shapes.shape_of(own.config, protocol.generation.dtype)
    widths = {
        model: Widths(shape.layers * shape.kv_heads, shape.head_dim) for model, (_, shape) in known.items()
    }
    planned = planned._replace(widths=widths)
    said = _answers(planned)
    prompts = {
        (model, task.name): _prompts(planned, model, task, items, given)
        for model in protocol.models
        for task in protocol.tasks
    }
    for phase, acting in phases(protocol).items():
        cells = grid.cells(acting)
        for (model, (own, shape)), task in (
            (each, task) for each in known.items() for task in protocol.tasks
        ):
            sizes, share, about = prompts[model, task.name]
            here = tuple(cell for cell in cells if (cell.model, cell.task) == (model, task.name))
            found.append(
                _load(planned, acting, phase, task, here, own, shape, sizes, share, about, items, said, given)
            )
    return found


def _load(
    planned: Planned,
    acting: Design,
    phase: str,
    task: Task,
    cells: Sequence[grid.Cell],
    own: shapes.Found,
    shape: Shape,
    sizes: Sequence[tuple[int, int]],
    share: float,
    about: tuple[str, ...],
    items: Mapping[str, Any],
    said: Mapping[tuple[str, ...], Sequence[int]],
    given: Given,
) -> Load:
    model, generation = cells[0].model, acting.generation
    context = round(sum(one for one, _ in sizes) / len(sizes))
    query = round(sum(two for _, two in sizes) / len(sizes))
    longest = max(sizes, key=sum)
    at = planned._replace(protocol=acting)
    slot_of = {cell.arm: at.slot(model, cell.arm) for cell in cells}
    policy_of = {cell: grid.policy_of(acting, cell, slot_of[cell.arm]) for cell in cells}
    use = Fraction(longest[0] + longest[1] + task.max_new_tokens)

    def kind(cell: grid.Cell) -> Kind:
        policy, slot = policy_of[cell], slot_of[cell.arm]
        budget = grid.budget_of(acting, cell, context, use, slot)
        worst = grid.budget_of(acting, cell, longest[0], use, slot)
        first = task.max_new_tokens if generation.think_only else generation.waits
        prompt = Prompt((0,) * longest[0], (0,) * longest[1])
        lane = Lane("", policy, worst, 0)
        most = most_slots(Request("", prompt, (lane,)), lane, task.max_new_tokens, first)
        if policy.exceeds or policy.cadence.in_blocks:
            most = max(most, sum(longest) + task.max_new_tokens)
        capacity = -(-most // QUANTUM) * QUANTUM
        size = slot_bytes(own.config, DTYPES[generation.dtype], policy.state)
        interval = policy.cadence.interval if budget is not None else None
        start = query + (context if budget is None else min(context, budget))
        settled = None if interval is None or generation.think_only else budget
        state = 0 if interval is None else _state(policy, shape, capacity, sum(longest))
        return Kind(cell.arm, cell.seed, start, settled, interval or 0, capacity, size, state, policy.evicts)

    kinds = tuple(map(kind, cells))
    policies = list(policy_of.values())
    signals = {signal for policy in policies if policy.evicts for signal in policy.needs}
    rows = [
        longest[0] if signal.window is None else signal.window
        for signal in signals
        if isinstance(signal, AttentionSignal)
    ]
    carried = [
        signal
        for policy in policies
        if policy.evicts and policy.cadence.interval is not None
        for signal in policy.needs
    ]
    seen = [one for one in carried if isinstance(one, AttentionSignal) and one.window is None]
    again = sum(policy.cadence.in_blocks or type(policy).__name__ == "Pressed" for policy in policies)
    answers, guessed = _answered(cells, task, said, given)
    assumed = [*about, *guessed]
    if own.source != "here":
        assumed.append(f"shape of {model.partition('@')[0]} from {own.source}")
    written = task.dev if phase == "probe" else task.confirm
    if task.name in items:
        count = round(share * len(items[task.name][SPLIT[phase]]))
    elif written is not None:
        count = written
    else:
        raise BadInput(f"tasks: {task.name}: its problems are not here; write dev and confirm, or fetch them")
    smallest: dict[str, tuple[Policy, int]] = {}
    for cell, each in zip(cells, kinds, strict=True):
        if each.evicts:
            smallest.setdefault(cell.arm, (policy_of[cell], max(1, each.start - query)))
            if each.budget is not None:
                smallest[cell.arm] = (policy_of[cell], each.budget)
    return Load(
        phase,
        model,
        task.name,
        own.config,
        shape,
        kinds,
        smallest,
        count,
        generation.problems_per_batch or 1,
        context + query,
        sum(longest),
        task.max_new_tokens,
        answers,
        max(rows, default=0),
        len(rows),
        bool(seen),
        any(one.raw for one in seen),
        again,
        tuple(assumed),
    )


def _state(policy: Policy, shape: Shape, capacity: int, prompt: int) -> int:
    """Return the most bytes of policy state for a lane: positions, float32 sums over slots for each query
    head, the last queries, and state from hidden states and keys, assumed to be one number per slot.
    """
    heads, layers = shape.q_heads, shape.layers
    size = 8 * layers * shape.kv_heads * capacity
    for signal in policy.needs:
        if isinstance(signal, AttentionSignal) and signal.window is not None:
            size += layers * heads * signal.window * shape.head_dim * shape.itemsize
        elif isinstance(signal, AttentionSignal):
            columns = prompt + capacity if signal.of_tokens else capacity
            size += 2 * 4 * layers * heads * columns
        elif isinstance(signal, HiddenSignal | FedSignal):
            size += 4 * layers * heads * (prompt + capacity) + 8 * layers * heads * shape.head_dim * 4
    return size


def _prompts(
    planned: Planned, model: str, task: Task, items: Mapping[str, Any], given: Given
) -> tuple[list[tuple[int, int]], float, tuple[str, ...]]:
    """Return (context, query) tokens of development problems not excluded, their share, and assumptions."""
    protocol = planned.protocol
    if given.prompt is not None:
        query = 16 if task.query == "outside" else 0
        return (
            [(max(1, given.prompt - query), query)],
            1.0,
            (f"prompts of {given.prompt:,} tokens, as given",),
        )
    if task.name not in items:
        raise BadInput(
            f"tasks: {task.name}: its problems are not here; say how long a prompt is: --prompt-tokens N"
        )
    own, about = planned.tasks[task.name], []
    try:
        words = load.tokenizer(model, planned.home)
    except BadInput:
        words = None
        named = model.partition("@")[0]
        about.append(f"prompts of {task.name} at {CHARACTERS} characters a token, for want of {named}")

    def rough(text: str) -> int:
        return -(-len(text) // CHARACTERS)

    count = rough if words is None else prompting.counter(words)
    sizes = []
    for item in items[task.name]["dev"]:
        problem = door.build(own, task.name, item, count)
        if words is None:
            context, query = rough(problem.context), rough(problem.question) + AROUND
            sizes.append((context, query) if task.query == "outside" else (context + query, 0))
        else:
            fed = prompting.render(problem, words, task.query)
            sizes.append((len(fed[0]), len(fed[1])))
    kept = [size for size in sizes if protocol.excludes(size[0]) is None]
    if not kept:
        raise BadInput(f"exclude: leaves no development problem of {task.name}; raise prompt_tokens_above")
    return kept, len(kept) / len(sizes), tuple(about)


def _answers(planned: Planned) -> dict[tuple[str, ...], list[int]]:
    """Return tokens of the answers of the probe, if it ran, by model, task, budget and arm, in order."""
    found: dict[tuple[str, ...], list[tuple[str, int]]] = defaultdict(list)
    folder = planned.folder / records.FOLDERS["probe"] if planned.folder else None
    if folder is not None and folder.is_dir():
        for record in records.read(folder):
            body = record["body"]
            if body["state"] == "ok":
                cell = body["cell"]
                at = tuple(str(cell[field]) for field in ("model", "task", "budget", "arm"))
                found[at].append((body["problem"], body["tokens"]))
    return {at: [tokens for _, tokens in sorted(each)] for at, each in found.items()}


def _answered(
    cells: Sequence[grid.Cell], task: Task, said: Mapping[tuple[str, ...], Sequence[int]], given: Given
) -> tuple[tuple[tuple[int, ...], ...], tuple[str, ...]]:
    """Return tokens of the answers of every cell, problem by problem, and assumptions."""
    if given.answer is not None:
        tokens = min(given.answer, task.max_new_tokens)
        return ((tokens,) * len(cells),), (f"answers of {tokens:,} tokens, as given",)
    every = [
        tokens
        for at, each in said.items()
        if (at[0], at[1]) == (cells[0].model, cells[0].task)
        for tokens in each
    ]
    if not every:
        tokens = math.ceil(task.max_new_tokens / 2)
        return ((tokens,) * len(cells),), (
            f"answers of {tokens:,} tokens on average, half of what is allowed: a guess; --answer-tokens N",
        )
    own = [said.get((cell.model, cell.task, cell.budget, cell.arm)) or every for cell in cells]
    problems = max(len(each) for each in own if each is not every) if any(e is not every for e in own) else 1
    rows = tuple(tuple(each[place * len(each) // problems] for each in own) for place in range(problems))
    return rows, ("answers as long as in the probe",)
