"""Check that a protocol fits its models: prompts their positions, budgets the protected slots, lanes the
memory.

It reads tokenizers and configurations; prompts are those of development problems. The held-out problems of a
user's file are measured too, since nothing makes them alike: only their lengths are used.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import torch
import transformers

from analysis.output.phases import phase
from policies import AskedSignal, Policy
from protocol import engine
from protocol.acts.locking import frozen, layered, rule_checks, sized
from protocol.evidence.refusals import BadInput
from protocol.evidence.relations import vocabulary
from protocol.evidence.run.anatomies import half_of
from protocol.evidence.run.anatomy_fields import HALVES
from protocol.locked.planned import Planned
from protocol.models import calibration, load, sources
from protocol.plan import grid
from protocol.plan.budget import MOST, Budget, Slot
from protocol.plan.design import Design, Task
from protocol.tasks import door, prompting
from protocol.tasks.file_task import FileTask
from protocol.tasks.lm_eval_task import LmEvalTask
from protocol.tasks.problem import Problem

__all__ = [
    "Checked",
    "checked",
    "lanes",
    "most_lanes",
    "refuse_one_budget_twice",
    "refuse_one_model_twice",
    "refuse_other_weights",
    "refuse_small_budgets",
    "shares_run",
]

LONG = 1024  # answer tokens within which a unit of slots that begins in the prompt may end

# Tokens of (context, query) of every measured problem, by model, task and extra prompt.
Lengths: TypeAlias = dict[tuple[str, Task, str], list[tuple[int, int]]]


class Checked(NamedTuple):
    lengths: Lengths
    checks: dict[str, Any]  # what the rule can detect


def checked(planned: Planned, items: Mapping[str, Any], *, again: bool = False) -> Checked:
    """Check that a lock with these items is feasible: the rule and its method at these sizes, then every
    prompt and every budget that needs no measurement. Raises BadInput; hashes nothing and reads no gold.

    is_replication: the lock replicates another one, whose method and budgets were accepted by the rules of
    that time.
    """
    _refuse_calibrated(planned, items)
    layered.refuse(planned)
    _refuse_unmarked(planned)
    sized.refuse_unfit(planned)
    sized.refuse_unlike_slots(planned)
    scored = frozen.scored(items, planned.tasks).get("scored", [])
    rule_checks.refuse_counts(planned.protocol, items, scored)
    _refuse_scored_traces(planned, scored)
    _refuse_empty_halves(planned, items)
    with phase("trying the rule on made-up studies, and how often it errs"):
        checks = rule_checks.checks(planned.protocol, items, again=again, scored=scored)
    with phase("tokenizing the development prompts"):
        lengths = _lengths(planned, items)
    _refuse_long_prompts(planned, lengths)
    if not again:
        known = [budget for budget in planned.protocol.budgets if budget.of_full is None]
        refuse_small_budgets(planned, lengths, known)
        refuse_one_budget_twice(planned, lengths, known)
    return Checked(lengths, checks)


def _refuse_scored_traces(planned: Planned, scored: Sequence[str]) -> None:
    """Raise BadInput for occlusions of answers that have scores: a label is a grade that changed."""
    if planned.protocol.anatomy is not None and scored:
        raise BadInput(
            f"anatomy: the answers of {scored[0]} have scores, and a label asks whether a right one turns "
            "wrong; leave [anatomy] out, or the task"
        )


def _refuse_empty_halves(planned: Planned, items: Mapping[str, Any]) -> None:
    """Raise BadInput if a half has no development problem."""
    own = planned.protocol.anatomy
    for name, item in items.items() if own is not None else ():
        found = {half_of(problem, item) for problem in item["dev"][: own and own.traces]}
        if missing := [half for half in HALVES if half not in found]:
            raise BadInput(
                f"anatomy: of the development problems of {name} none falls into the half {missing[0]!r} (by "
                "the MD5 of its id or its cluster); take more of them: dev of the task, or anatomy.traces"
            )


def shares_run(planned: Planned, items: Mapping[str, Any], lengths: Lengths) -> dict[tuple[str, str], float]:
    """Return the share of measured problems that are not excluded, by model and task."""
    found = {}
    for (model, task, _), kept in lengths.items():
        own = isinstance(planned.tasks[task.name], FileTask | LmEvalTask)
        measured = len(items[task.name]["dev"]) + len(items[task.name]["confirm"]) * own
        found[model, task.name] = len(kept) / measured
    return found


def refuse_other_weights(planned: Planned, frozen: dict[str, dict[str, str]]) -> None:
    """Refuse statistics that an arm needs and that were measured on another model or on other weights."""
    for model in planned.protocol.models:
        for name in planned.calibrated():
            path = calibration.statistics_paths(model, planned.home)[name]
            if calibration.about(path).get("weights") != calibration.digest(frozen[model]):
                raise BadInput(
                    f"{path}: was measured on other weights than those of {model}; move it away and run: "
                    f"kv-prereg calibrate {model} {name} --task <task>"
                )


def refuse_one_model_twice(frozen: Mapping[str, Mapping[str, str]]) -> None:
    """Refuse two names of the same weights: a study of one model would pass for one of two.

    locked_weights: SHA-256 of the files of each model, by name. Raises BadInput.
    """
    seen: dict[frozenset[str], str] = {}
    for model, files in frozen.items():
        weights = frozenset(
            digest
            for name, digest in files.items()
            if name.endswith(".safetensors") and not name.startswith(sources.CALIBRATED)
        )
        if weights and (other := seen.setdefault(weights, model)) != model:
            raise BadInput(f"models: {other} and {model} are the same weights; name one of them")


def _refuse_calibrated(planned: Planned, items: Mapping[str, Any]) -> None:
    """Refuse statistics that were measured on held-out problems, by id; confirming compares the prompts."""
    for model in planned.protocol.models:
        for path in planned.measured(model).values():
            used = calibration.problems(path).keys()
            for task, item in items.items():
                if shared := sorted(used & set(item["confirm"])):
                    raise BadInput(
                        f"{path}: was measured on held-out problems of {task} ({len(shared)}, the first is "
                        f"{shared[0]}); move it away and calibrate {model} on other problems"
                    )


def _refuse_unmarked(planned: Planned) -> None:
    """Refuse a model without a mark that ends its thinking, in a study that evicts only while thinking."""
    if not planned.protocol.generation.think_only:
        return
    for model in planned.protocol.models:
        if not load.answer_marks(load.tokenizer(model, planned.home)):
            raise BadInput(
                f"generation.think_only: {model} has no token {vocabulary.THINK} and none that begins with "
                f"{vocabulary.BOXED}, so that nothing ends its thinking; leave think_only or this model out"
            )


def _lengths(planned: Planned, items: Mapping[str, Any]) -> Lengths:
    lengths: Lengths = {}
    protocol, known = planned.protocol, planned.tasks
    asked = dict.fromkeys(protocol.asks(arm.name) for arm in protocol.arms)
    for source in protocol.models:
        tokenizer = load.tokenizer(source, planned.home)
        count = prompting.counter(tokenizer)
        for task, asks in itertools.product(protocol.tasks, asked):
            own, name = known[task.name], task.name
            sized = partial(_sized, tokenizer=tokenizer, query=task.query, asks=asks)
            sizes = [sized(door.build(own, name, item, count)) for item in items[name]["dev"]]
            kept = [size for size in sizes if protocol.excludes(size[0]) is None]
            if not kept:
                raise BadInput(
                    f"exclude: leaves no development problem of {task.name}; raise prompt_tokens_above"
                )
            if isinstance(own, FileTask | LmEvalTask):
                held = [door.size(own, item, count, sized) for item in items[name]["confirm"]]
                kept += [size for size in held if protocol.excludes(size[0]) is None]
            lengths[source, task, asks] = kept
    return lengths


def _sized(problem: Problem, tokenizer: Any, query: str, asks: str) -> tuple[int, int]:
    context, asked = prompting.render(problem, tokenizer, query, asks)
    return len(context), len(asked)


def _refuse_long_prompts(planned: Planned, lengths: Lengths) -> None:
    """Refuse positions beyond those that a model was trained for, because they make it fail silently."""
    for (model, task, _), each in lengths.items():
        config = transformers.AutoConfig.from_pretrained(sources.locate(model, planned.home))
        if (longest := max(map(sum, each))) + task.max_new_tokens > config.max_position_embeddings:
            raise BadInput(
                f"tasks: {task.name}: a prompt of {longest} tokens and {task.max_new_tokens} new ones exceed "
                f"the {config.max_position_embeddings} positions of {model}; shorten it, or set [exclude] "
                "prompt_tokens_above"
            )
    _refuse_long_passages(planned, lengths)


def _refuse_long_passages(planned: Planned, lengths: Lengths) -> None:
    """Refuse passages that a policy feeds behind the text and that exceed the positions, as far as they are
    known before there is a text.

    A text whose every token ends a sentence has the shortest windows, so that no prompt is refused that fits;
    the engine refuses what a real text makes longer. If the policy evicts while decoding, the answer counts
    with its full length.
    """
    protocol = planned.protocol
    for (model, task, asks), each in lengths.items():
        config = transformers.AutoConfig.from_pretrained(sources.locate(model, planned.home))
        for arm in (arm for arm in protocol.arms if protocol.asks(arm.name) == asks):
            policy = protocol.policy(arm.name)
            answered = policy.cadence.interval is not None
            seen = max(context + (query + task.max_new_tokens) * answered for context, query in each)
            token_ids = torch.zeros(seen, dtype=torch.int64)
            asked = (signal for signal in policy.needs if isinstance(signal, AskedSignal))
            passages = (own for signal in asked for own in signal.passages(token_ids, frozenset({0})))
            if (last := seen + max(map(len, passages), default=0)) > config.max_position_embeddings:
                raise BadInput(
                    f"arms: {arm.name!r} feeds tokens behind texts of {seen} tokens of {task.name}, up to "
                    f"position {last} of the {config.max_position_embeddings} of {model}; shorten the task, "
                    "or leave the arm out"
                )


def refuse_small_budgets(planned: Planned, lengths: Lengths, budgets: Iterable[Budget]) -> None:
    """Refuse a budget below what a policy may protect, on the shortest and the longest prompts: a share is
    smallest on the shortest, a pinned prompt largest on the longest. Of a budget that changes from round to
    round, the smallest counts.

    What the text decides, such as the length of a protected trunk, counts with its maximum: otherwise lanes
    whose text needs more would fail, in this arm alone, and would not be missing at random.
    """
    protocol, budgets = planned.protocol, tuple(budgets)
    preserve = protocol.generation.preserve is not None
    fix = ", or let generation.preserve protect less" if preserve else ""
    policy_of = {arm.name: protocol.policy(arm.name) for arm in protocol.arms}
    asks_of = {arm.name: protocol.asks(arm.name) for arm in protocol.arms}
    for (model, task, asks), each in lengths.items():
        own = (arm for arm, policy in policy_of.items() if policy.evicts and asks_of[arm] == asks)
        evicting = {arm: policy_of[arm] for arm in own}
        use = planned.use(model, task.name)
        ends = sorted({min(each), max(each), max(each, key=sum)})
        for prompt, (arm, policy), budget in itertools.product(ends, evicting.items(), budgets):
            slots = budget.of(prompt[0], use, slot := planned.slot(model, arm))
            if slot is not None and not 1 <= slots <= MOST:
                raise BadInput(f"budgets: {_unholdable(budget, slots, slot, f'arm {arm!r} on {model}')}")
            slots = policy.cadence.least(slots)
            if slots < (protected := _protected(policy, *prompt, slots)):
                raise BadInput(
                    f"budgets: {budget} gives {slots} slots for {task.name} ({prompt[0]} tokens), "
                    f"fewer than the {protected} that arm {arm!r} protects at most; raise the budget{fix}"
                )


def refuse_one_budget_twice(planned: Planned, lengths: Lengths, budgets: Iterable[Budget]) -> None:
    """Refuse two budgets that give the same slots to some arm on every prompt of a model and task: the same
    lanes would count as two contrasts of the rule. lengths: of the measured prompts.
    """
    budgets, protocol = tuple(budgets), planned.protocol
    evicting = [arm.name for arm in protocol.arms if protocol.policy(arm.name).evicts]
    for (model, task, _), each in lengths.items():
        use = planned.use(model, task.name)
        for slot in dict.fromkeys(planned.slot(model, arm) for arm in evicting):
            seen: dict[tuple[int, ...], Budget] = {}
            for budget in budgets:
                slots = tuple(budget.of(context, use, slot) for context, _ in each)
                if (other := seen.setdefault(slots, budget)) is not budget:
                    of = "" if slot is None else f" of {slot.own} bytes"
                    raise BadInput(
                        f"budgets: {other} and {budget} are the same slots{of} for {model} on {task.name} "
                        f"({slots[0]} on a prompt of {each[0][0]} tokens); leave one out"
                    )


def _unholdable(budget: Budget, slots: int, slot: Slot, of: str) -> str:
    """Return the message about a budget that gives no slot, or more than there can be. owner: whose slots
    they are.
    """
    if slots > MOST:
        return f"{budget} gives {slots} slots of {of}, over {MOST}; write less"
    least = Budget(None, None, bytes=slot.heads * slot.own)
    if budget.bytes_of is not None:
        least = Budget(None, None, bytes_of=-(-slot.own // slot.computed))
    return (
        f"{budget} is less than one slot of {of}, which takes {slot.heads * slot.own} bytes over all layers "
        f'and heads; write "{least}" or more'
    )


def _protected(policy: Policy, context: int, query: int, slots: int) -> int:
    """Return the most slots that a policy can come to protect after a context and a query of so many tokens:
    at the end of the context or, if it evicts while decoding, in a cache that has outgrown its budget. A
    policy that may exceed its budget needs room only for the slots that are protected by their position
    alone.
    """
    held = [policy.protect.slots(torch.ones(context, dtype=torch.bool), slots, decoding=False)]
    if policy.cadence.interval is not None:
        tokens = context + query
        filled = torch.ones(max(tokens, slots) + LONG, dtype=torch.bool)
        prompt = torch.arange(len(filled)) < tokens
        held.append(policy.protect.slots(filled, slots, decoding=True, prompt=prompt))
    return max(int(protected.sum()) if policy.exceeds else policy.reach(protected) for protected in held)


def lanes(planned: Planned, model: str, lengths: Lengths) -> int:
    """Return how many lanes decode at once: as registered, or as many as fit into half of the free memory.

    Every lane is assumed to retain the whole longest development prompt.
    """
    protocol, generation = planned.protocol, planned.protocol.generation
    if generation.lanes_per_batch is not None:
        return generation.lanes_per_batch
    slots = max(
        context + query + task.max_new_tokens
        for (of, task, _), each in lengths.items()
        if of == model
        for context, query in each
    )
    config = transformers.AutoConfig.from_pretrained(sources.locate(model, planned.home))
    dtype = load.DTYPES[generation.dtype]
    asked = _asked(protocol)
    concurrent = engine.max_concurrent_lanes(config, dtype, torch.device(generation.device), slots, asked)
    return max(1, concurrent // (generation.workers or 1))


def most_lanes(protocol: Design) -> int:
    """Return the number that `choose_lane_count` never exceeds, on any machine."""
    return max(1, _asked(protocol) // (protocol.generation.workers or 1))


def _asked(protocol: Design) -> int:
    """Return the lanes of one batch, over all models."""
    return len(grid.cells(protocol)) * (protocol.generation.problems_per_batch or 1)
