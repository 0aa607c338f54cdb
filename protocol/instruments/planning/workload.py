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
from protocol.engine.max_concurrent import max_slots, slot_bytes
from protocol.evidence import records
from protocol.formats.refusals import BadInput
from protocol.instruments.planning import shapes
from protocol.instruments.planning.cost_model import QUANTUM, LaneKind, Shape
from protocol.models import load
from protocol.models.load import DTYPES
from protocol.plan import grid
from protocol.plan.design import Design, Task
from protocol.plan.slot_bytes import Widths
from protocol.tasks import held_out_guard, prompting
from protocol.workspace.planned_study import PlannedStudy

__all__ = ["Load", "UserInputs", "designs_by_phase", "list_loads"]

CHARACTERS = 4  # per token, without a tokenizer
AROUND = 32  # tokens of a chat template
SPLIT = {"probe": "dev", "confirm": "confirm"}


class UserInputs(NamedTuple):
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
    kinds: tuple[LaneKind, ...]
    arms: Mapping[str, tuple[Policy, int]]
    problems: int
    problems_per_batch: int
    prompt: int
    longest: int
    limit: int
    answers: tuple[tuple[int, ...], ...]
    watched: int
    signals: int
    watches: bool
    raw: bool
    rereads: int
    assumed: tuple[str, ...]


def designs_by_phase(protocol: Design) -> dict[str, Design]:
    """Return the designs of probe and confirm; with a sweep, confirm uses the first candidate as winner."""
    sweep = protocol.sweep
    confirmed = protocol if sweep is None else protocol.confirm_design(sweep.candidates[0])
    return {"probe": protocol.probe_design(), "confirm": confirmed}


def list_loads(planned: PlannedStudy, items: Mapping[str, Any], inputs: UserInputs) -> list[Load]:
    """Return the loads by phase, model and task, in running order. items: the problems of each available
    task. Raises BadInput for an unknown quantity that the user has not set.
    """
    protocol, loads = planned.protocol, []
    by_model = {}
    for model in protocol.models:
        model_config = shapes.find_config(model, planned.home, inputs.shapes.get(model))
        by_model[model] = model_config, shapes.shape_of(model_config.config, protocol.generation.dtype)
    widths = {model: Widths(shape.layers * shape.kv_heads, shape.head_dim) for model, (_, shape) in by_model.items()}
    planned = planned._replace(widths=widths)
    probe_answers = _probe_answers(planned)
    prompts = {
        (model, task.name): _prompt_sizes(planned, model, task, items, inputs)
        for model in protocol.models
        for task in protocol.tasks
    }
    for phase, design in designs_by_phase(protocol).items():
        cells = grid.cells(design)
        for (model, (model_config, shape)), task in (
            (item, task) for item in by_model.items() for task in protocol.tasks
        ):
            sizes, share, about = prompts[model, task.name]
            task_cells = tuple(cell for cell in cells if (cell.model, cell.task) == (model, task.name))
            loads.append(
                _build_load(
                    planned,
                    design,
                    phase,
                    task,
                    task_cells,
                    model_config,
                    shape,
                    sizes,
                    share,
                    about,
                    items,
                    probe_answers,
                    inputs,
                )
            )
    return loads


def _build_load(
    planned: PlannedStudy,
    design: Design,
    phase: str,
    task: Task,
    cells: Sequence[grid.Cell],
    model_config: shapes.ModelConfig,
    shape: Shape,
    sizes: Sequence[tuple[int, int]],
    share: float,
    about: tuple[str, ...],
    items: Mapping[str, Any],
    probe_answers: Mapping[tuple[str, ...], Sequence[int]],
    inputs: UserInputs,
) -> Load:
    model, generation = cells[0].model, design.generation
    context = round(sum(item for item, _ in sizes) / len(sizes))
    query = round(sum(query_tokens for _, query_tokens in sizes) / len(sizes))
    longest = max(sizes, key=sum)
    study = planned._replace(protocol=design)
    slot_of = {cell.arm: study.slot(model, cell.arm) for cell in cells}
    policy_of = {cell: grid.policy_of(design, cell, slot_of[cell.arm]) for cell in cells}
    use = Fraction(longest[0] + longest[1] + task.max_new_tokens)

    def kind(cell: grid.Cell) -> LaneKind:
        policy, slot = policy_of[cell], slot_of[cell.arm]
        budget = grid.budget_of(design, cell, context, use, slot)
        worst = grid.budget_of(design, cell, longest[0], use, slot)
        first = task.max_new_tokens if generation.think_only else generation.steps_before_eviction
        prompt = Prompt((0,) * longest[0], (0,) * longest[1])
        lane = Lane("", policy, worst, 0)
        most = max_slots(Request("", prompt, (lane,)), lane, task.max_new_tokens, first)
        if policy.exceeds or policy.cadence.in_blocks:
            most = max(most, sum(longest) + task.max_new_tokens)
        capacity = -(-most // QUANTUM) * QUANTUM
        size = slot_bytes(model_config.config, DTYPES[generation.dtype], policy.state)
        interval = policy.cadence.interval if budget is not None else None
        start = query + (context if budget is None else min(context, budget))
        settled = None if interval is None or generation.think_only else budget
        state = 0 if interval is None else _state_bytes(policy, shape, capacity, sum(longest))
        return LaneKind(cell.arm, cell.seed, start, settled, interval or 0, capacity, size, state, policy.evicts)

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
    watching = [item for item in carried if isinstance(item, AttentionSignal) and item.window is None]
    rereads = sum(policy.cadence.in_blocks or type(policy).__name__ == "Pressed" for policy in policies)
    answers, guessed = _answer_lengths(cells, task, probe_answers, inputs)
    assumed = [*about, *guessed]
    if model_config.source != "here":
        assumed.append(f"shape of {model.partition('@')[0]} from {model_config.source}")
    written = task.dev if phase == "probe" else task.confirm
    if task.name in items:
        count = round(share * len(items[task.name][SPLIT[phase]]))
    elif written is not None:
        count = written
    else:
        raise BadInput(f"tasks: {task.name}: its problems are not here; write dev and confirm, or fetch them")
    smallest: dict[str, tuple[Policy, int]] = {}
    for cell, lane_kind in zip(cells, kinds, strict=True):
        if lane_kind.evicts:
            smallest.setdefault(cell.arm, (policy_of[cell], max(1, lane_kind.start - query)))
            if lane_kind.budget is not None:
                smallest[cell.arm] = (policy_of[cell], lane_kind.budget)
    return Load(
        phase,
        model,
        task.name,
        model_config.config,
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
        bool(watching),
        any(item.raw for item in watching),
        rereads,
        tuple(assumed),
    )


def _state_bytes(policy: Policy, shape: Shape, capacity: int, prompt: int) -> int:
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


def _prompt_sizes(
    planned: PlannedStudy, model: str, task: Task, items: Mapping[str, Any], inputs: UserInputs
) -> tuple[list[tuple[int, int]], float, tuple[str, ...]]:
    """Return (context, query) tokens of development problems not excluded, their share, and assumptions."""
    protocol = planned.protocol
    if inputs.prompt is not None:
        query = 16 if task.query == "outside" else 0
        return (
            [(max(1, inputs.prompt - query), query)],
            1.0,
            (f"prompts of {inputs.prompt:,} tokens, as given",),
        )
    if task.name not in items:
        raise BadInput(f"tasks: {task.name}: its problems are not here; say how long a prompt is: --prompt-tokens N")
    definition, about = planned.tasks[task.name], []
    try:
        tokenizer = load.tokenizer(model, planned.home)
    except BadInput:
        tokenizer = None
        model_name = model.partition("@")[0]
        about.append(f"prompts of {task.name} at {CHARACTERS} characters a token, for want of {model_name}")

    def rough(text: str) -> int:
        return -(-len(text) // CHARACTERS)

    count = rough if tokenizer is None else prompting.counter(tokenizer)
    sizes = []
    for item in items[task.name]["dev"]:
        problem = held_out_guard.build(definition, task.name, item, count)
        if tokenizer is None:
            context, query = rough(problem.context), rough(problem.question) + AROUND
            sizes.append((context, query) if task.query == "outside" else (context + query, 0))
        else:
            fed = prompting.render(problem, tokenizer, task.query)
            sizes.append((len(fed[0]), len(fed[1])))
    included = [size for size in sizes if protocol.exclusion_reason(size[0]) is None]
    if not included:
        raise BadInput(f"exclude: leaves no development problem of {task.name}; raise prompt_tokens_above")
    return included, len(included) / len(sizes), tuple(about)


def _probe_answers(planned: PlannedStudy) -> dict[tuple[str, ...], list[int]]:
    """Return tokens of the answers of the probe, if it ran, by model, task, budget and arm, in order."""
    lengths: dict[tuple[str, ...], list[tuple[str, int]]] = defaultdict(list)
    folder = planned.folder / records.FOLDERS["probe"] if planned.folder else None
    if folder is not None and folder.is_dir():
        for record in records.read_records(folder):
            body = record["body"]
            if body["state"] == "ok":
                cell = body["cell"]
                key = tuple(str(cell[field]) for field in ("model", "task", "budget", "arm"))
                lengths[key].append((body["problem"], body["tokens"]))
    return {key: [tokens for _, tokens in sorted(pairs)] for key, pairs in lengths.items()}


def _answer_lengths(
    cells: Sequence[grid.Cell], task: Task, probe_answers: Mapping[tuple[str, ...], Sequence[int]], inputs: UserInputs
) -> tuple[tuple[tuple[int, ...], ...], tuple[str, ...]]:
    """Return tokens of the answers of every cell, problem by problem, and assumptions."""
    if inputs.answer is not None:
        tokens = min(inputs.answer, task.max_new_tokens)
        return ((tokens,) * len(cells),), (f"answers of {tokens:,} tokens, as given",)
    every = [
        tokens
        for key, lengths in probe_answers.items()
        if (key[0], key[1]) == (cells[0].model, cells[0].task)
        for tokens in lengths
    ]
    if not every:
        tokens = math.ceil(task.max_new_tokens / 2)
        return ((tokens,) * len(cells),), (
            f"answers of {tokens:,} tokens on average, half of what is allowed: a guess; --answer-tokens N",
        )
    by_cell = [probe_answers.get((cell.model, cell.task, cell.budget, cell.arm)) or every for cell in cells]
    problems = (
        max(len(lengths) for lengths in by_cell if lengths is not every) if any(e is not every for e in by_cell) else 1
    )
    rows = tuple(tuple(lengths[index * len(lengths) // problems] for lengths in by_cell) for index in range(problems))
    return rows, ("answers as long as in the probe",)
