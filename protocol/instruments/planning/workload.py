"""The workload of a study: lanes, slots, prompts and the expected lengths of answers."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from policies import AttentionSignal, FedSignal, HiddenSignal, Policy
from protocol.engine import Lane, Prompt, Request
from protocol.engine.max_concurrent import max_slots, slot_bytes
from protocol.evidence import records
from protocol.formats.refusals import BadInput
from protocol.instruments.planning import shapes
from protocol.instruments.planning.roofline import QUANTUM, LaneKind, Shape
from protocol.models import load
from protocol.models.load import DTYPES
from protocol.plan import grid
from protocol.plan.slot_bytes import Widths
from protocol.plan.task import Task
from protocol.presses.pressed import Pressed
from protocol.tasks import held_out_guard, prompting
from protocol.workspace.planned_study import PlannedStudy

CHARACTERS = 4  # per token, without a tokenizer
AROUND = 32  # tokens of a chat template
SPLIT = {"probe": "dev", "confirm": "confirm"}


class UserInputs(NamedTuple):
    """Values from the user for what is unknown here. shapes: files, by model. prompt, answer: tokens."""

    shapes: Mapping[str, Path]
    prompt: int | None = None
    answer: int | None = None


class Load(NamedTuple):
    """The work of one phase, model and task. kinds: the lanes of a problem, in order. prompt, longest: mean and
    maximum tokens of a prompt. limit: new tokens at most. answers: mean tokens of each kind of lane. watched:
    attention rows that signals read; signals: how many signals. watches, raw: whether they read attention, and
    logits, of new tokens. rereads: further prefills of a prompt by lanes that need their own. assumed: sentences.
    """

    phase: str
    model: str
    task: str
    shape: Shape
    kinds: tuple[LaneKind, ...]
    problems: int
    problems_per_batch: int
    prompt: int
    longest: int
    limit: int
    answers: tuple[int, ...]
    watched: int
    signals: int
    watches: bool
    raw: bool
    rereads: int
    assumed: tuple[str, ...]


class PromptSizes(NamedTuple):
    """(context, query) tokens of the development problems that are not excluded, and their share of all."""

    sizes: Sequence[tuple[int, int]]
    share: float
    assumed: tuple[str, ...]


def list_loads(planned: PlannedStudy, items: Mapping[str, Any], inputs: UserInputs) -> list[Load]:
    """Return the loads by phase, model and task, in running order. items: the problems of each available
    task. Raises BadInput for an unknown quantity that the user has not set.
    """
    protocol = planned.protocol
    configs = {model: shapes.find_config(model, planned.home, inputs.shapes.get(model)) for model in protocol.models}
    by_model = {model: shapes.shape_of(found.config, protocol.generation.dtype) for model, found in configs.items()}
    widths = {model: Widths(shape.layers * shape.kv_heads, shape.head_dim) for model, shape in by_model.items()}
    planned = planned._replace(widths=widths)
    probe_answers = _probe_answers(planned)
    prompts = {
        (model, task.name): _prompt_sizes(planned, model, task, items, inputs)
        for model in protocol.models
        for task in protocol.tasks
    }
    loads = []
    for phase, design in protocol.designs_by_phase().items():
        for model in protocol.models:
            for task in protocol.tasks:
                cells = [cell for cell in grid.cells(design) if (cell.model, cell.task) == (model, task.name)]
                answers, guessed = _answer_lengths(cells, task, probe_answers, inputs)
                prompt = prompts[model, task.name]
                assumed = [*prompt.assumed, guessed]
                if (source := configs[model].source) != "here":
                    assumed.append(f"shape of {model.partition('@')[0]} from {source}")
                study = planned._replace(protocol=design)
                built = _build_load(study, task, cells, configs[model], by_model[model], prompt)
                count = _count_problems(phase, task, items, prompt.share)
                loads.append(built._replace(phase=phase, problems=count, answers=answers, assumed=tuple(assumed)))
    return loads


def _count_problems(phase: str, task: Task, items: Mapping[str, Any], share: float) -> int:
    if task.name in items:
        return round(share * len(items[task.name][SPLIT[phase]]))
    if (registered := task.dev if phase == "probe" else task.confirm) is None:
        raise BadInput(
            f"tasks: {task.name}: its problems are not on this machine; write dev and confirm, or fetch them"
        )
    return registered


def _build_load(
    study: PlannedStudy,
    task: Task,
    cells: Sequence[grid.Cell],
    model_config: shapes.ModelConfig,
    shape: Shape,
    prompt: PromptSizes,
) -> Load:
    """Return the load of these cells, without its problems and answers."""
    design, model, generation = study.protocol, cells[0].model, study.protocol.generation
    context, query = (round(sum(size[part] for size in prompt.sizes) / len(prompt.sizes)) for part in (0, 1))
    longest = max(prompt.sizes, key=sum)
    use = Fraction(sum(longest) + task.max_new_tokens)
    kinds, policies_run = [], []
    for cell in cells:
        slot = study.slot(model, cell.arm)
        policy = grid.policy_of(design, cell, slot)
        budget, worst = (
            grid.budget_of(design, cell, tokens, use, slot) if policy.evicts else None
            for tokens in (context, longest[0])
        )
        first = task.max_new_tokens if generation.think_only else generation.steps_before_eviction
        lane = Lane("", policy, worst, 0)
        request = Request("", Prompt((0,) * longest[0], (0,) * longest[1]), (lane,))
        most = max_slots(request, lane, task.max_new_tokens, first)
        if policy.exceeds or policy.cadence.in_blocks:
            most = max(most, sum(longest) + task.max_new_tokens)
        capacity = -(-most // QUANTUM) * QUANTUM
        size = slot_bytes(model_config.config, DTYPES[generation.dtype], policy.state)
        interval = policy.cadence.interval if budget is not None else None
        start = query + (context if budget is None else min(context, budget))
        settled = None if interval is None or generation.think_only else budget
        state = shape.layers * shape.kv_heads * policy.recent_bytes(shape.head_dim)
        state += 0 if interval is None else _state_bytes(policy, shape, capacity, sum(longest))
        kinds.append(LaneKind(cell.arm, cell.seed, start, settled, interval or 0, capacity, size, state, policy.evicts))
        policies_run.append(policy)
    read = {signal for policy in policies_run if policy.evicts for signal in policy.needs}
    rows = [signal.window or longest[0] for signal in read if isinstance(signal, AttentionSignal)]
    watching = [
        signal
        for policy in policies_run
        if policy.evicts and policy.cadence.interval is not None
        for signal in policy.needs
        if isinstance(signal, AttentionSignal) and signal.window is None
    ]
    return Load(
        "",
        model,
        task.name,
        shape,
        tuple(kinds),
        0,
        generation.problems_per_batch or 1,
        context + query,
        sum(longest),
        task.max_new_tokens,
        (),
        watched=max(rows, default=0),
        signals=len(rows),
        watches=bool(watching),
        raw=any(signal.raw for signal in watching),
        rereads=sum(policy.cadence.in_blocks or isinstance(policy, Pressed) for policy in policies_run),
        assumed=(),
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
) -> PromptSizes:
    if inputs.prompt is not None:
        query = 16 if task.query == "outside" else 0
        size = (max(1, inputs.prompt - query), query)
        return PromptSizes([size], 1.0, (f"prompts of {inputs.prompt:,} tokens, as given",))
    if task.name not in items:
        raise BadInput(
            f"tasks: {task.name}: its problems are not on this machine; give the length of a prompt: --prompt-tokens N"
        )
    definition = planned.tasks[task.name]
    assumed: tuple[str, ...] = ()
    try:
        tokenizer = load.tokenizer(model, planned.home)
    except BadInput:
        tokenizer = None
        model_name = model.partition("@")[0]
        assumed = (
            f"prompts of {task.name} at {CHARACTERS} characters a token, since {model_name} is not on this machine",
        )

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
    included = [size for size in sizes if planned.protocol.exclusion_reason(size[0]) is None]
    if not included:
        raise BadInput(f"exclude: leaves no development problem of {task.name}; raise prompt_tokens_above")
    return PromptSizes(included, len(included) / len(sizes), assumed)


def _probe_answers(planned: PlannedStudy) -> dict[tuple[str, ...], list[int]]:
    """Return tokens of the answers of the probe, if it ran, by model, task, budget and arm."""
    lengths: dict[tuple[str, ...], list[int]] = defaultdict(list)
    folder = planned.folder / records.FOLDERS["probe"] if planned.folder else None
    if folder is not None and folder.is_dir():
        for body in (record["body"] for record in records.read_records(folder)):
            if body["state"] == "ok":
                key = tuple(str(body["cell"][field]) for field in ("model", "task", "budget", "arm"))
                lengths[key].append(body["tokens"])
    return lengths


def _answer_lengths(
    cells: Sequence[grid.Cell], task: Task, probe_answers: Mapping[tuple[str, ...], Sequence[int]], inputs: UserInputs
) -> tuple[tuple[int, ...], str]:
    """Return mean tokens of the answers of every cell, and what is assumed of them."""
    if inputs.answer is not None:
        tokens = min(inputs.answer, task.max_new_tokens)
        return (tokens,) * len(cells), f"answers of {tokens:,} tokens, as given"
    pair = cells[0].model, cells[0].task
    every = [tokens for key, lengths in probe_answers.items() if key[:2] == pair for tokens in lengths]
    if not every:
        tokens = math.ceil(task.max_new_tokens / 2)
        guess = (
            f"answers of {tokens:,} tokens on average, a guess (half of the limit); change it with --answer-tokens N"
        )
        return (tokens,) * len(cells), guess
    by_cell = [probe_answers.get((*pair, cell.budget, cell.arm)) or every for cell in cells]
    return tuple(round(mean(lengths)) for lengths in by_cell), "answers as long as in the probe"
