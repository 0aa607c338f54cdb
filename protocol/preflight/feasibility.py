"""Check that a protocol fits its models: prompts their positions, budgets the protected slots, lanes the memory.

It reads tokenizers and configurations; prompts are those of development problems. The held-out problems of a
user's file are measured too, since nothing makes them alike: only their lengths are used.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import torch
import transformers

from policies import ExtraPromptSignal, Policy
from protocol import engine
from protocol.engine.rotation import depends_on_company
from protocol.evidence.invariants import vocabulary
from protocol.formats.instruments import INSTRUMENTS
from protocol.formats.progress_display import phase
from protocol.formats.refusals import BadInput
from protocol.formats.registry import load_attribute
from protocol.models import calibration, calibration_paths, checkpoint, load, sources
from protocol.plan import grid
from protocol.plan.budget import MOST, Budget, Slot
from protocol.plan.design import Design
from protocol.plan.task import Task
from protocol.preflight import frozen_problems, layer_support, slot_sizes
from protocol.preflight.model_trial import small_network
from protocol.tasks import held_out_guard, prompting
from protocol.tasks.file_task import FileTask
from protocol.tasks.lm_eval_task import LmEvalTask
from protocol.tasks.problem import Problem
from protocol.workspace.planned_study import PlannedStudy

LONG_ANSWER = 1024  # answer tokens within which a unit of slots that begins in the prompt may end

# Tokens of (context, query) of every measured problem, by model, task and extra prompt.
PromptLengths: TypeAlias = dict[tuple[str, Task, str], list[tuple[int, int]]]


class Feasibility(NamedTuple):
    lengths: PromptLengths
    checks: dict[str, Any]  # what the rule can detect


def check_feasibility(planned: PlannedStudy, items: Mapping[str, Any], *, is_replication: bool = False) -> Feasibility:
    """Check that a lock with these items (from `written_study`) is feasible: the rule and its method at these sizes,
    then every prompt and every budget that needs no measurement. Raises BadInput; hashes nothing and reads no gold.

    is_replication: the lock replicates another one, whose method and budgets were accepted by the rules of that time.
    """
    _refuse_calibrated(planned, items)
    layer_support.refuse_unsupported(planned)
    for model in planned.protocol.models:
        checkpoint.refuse_unfit(model, planned.home)
    _refuse_without_answer_marks(planned)
    slot_sizes.refuse_unfit_states(planned)
    slot_sizes.refuse_unequal_slots(planned)
    scored = frozen_problems.scored_tasks(items, planned)
    for instrument in INSTRUMENTS:
        if instrument.feasibility and (table := planned.protocol.instruments.get(instrument.name)):
            load_attribute(instrument.feasibility)(table, items, scored)
    with phase("testing the rule and its error rates on simulated studies"):
        from protocol.preflight import rule_checks  # with scipy and pandas, which the check before a claim needs not

        rule_results = rule_checks.check_rule(planned.protocol, items, is_replication=is_replication, scored=scored)
    with phase("tokenizing the development prompts"):
        lengths = _measure_lengths(planned, items)
    _refuse_long_prompts(planned, lengths)
    if not is_replication:
        known_budgets = [budget for budget in planned.protocol.all_budgets if budget.of_full is None]
        refuse_small_budgets(planned, lengths, known_budgets)
        refuse_duplicate_budgets(planned, lengths, known_budgets)
        _refuse_idle_budgets(planned, lengths, known_budgets)
    return Feasibility(lengths, rule_results)


def run_shares(planned: PlannedStudy, items: Mapping[str, Any], lengths: PromptLengths) -> dict[tuple[str, str], float]:
    """Return the share of measured problems that are not excluded, by model and task."""
    shares = {}
    for (model, task, _), retained_lengths in lengths.items():
        is_user_task = isinstance(planned.tasks[task.name], FileTask | LmEvalTask)
        measured_count = len(items[task.name]["dev"]) + len(items[task.name]["confirm"]) * is_user_task
        shares[model, task.name] = len(retained_lengths) / measured_count
    return shares


def refuse_other_weights(planned: PlannedStudy, locked_weights: dict[str, dict[str, str]]) -> None:
    """Refuse statistics that an arm needs and that were measured on another model or on other weights."""
    for model in planned.protocol.models:
        for name in planned.required_statistics():
            path = calibration_paths.statistics_paths(model, planned.home)[name]
            if calibration.read_metadata(path).get("weights") != calibration.digest(locked_weights[model]):
                raise BadInput(
                    f"{path}: was measured on weights other than those of {model}; move it away and run: "
                    f"kv-prereg calibrate {model} {name} --task <task>"
                )


def refuse_duplicate_models(locked_weights: Mapping[str, Mapping[str, str]]) -> None:
    """Refuse two names of the same weights: a study of one model would pass for one of two.

    locked_weights: SHA-256 of the files of each model, by name. Raises BadInput.
    """
    models_by_weights: dict[frozenset[str], str] = {}
    for model, files in locked_weights.items():
        weights = frozenset(
            digest
            for name, digest in files.items()
            if name.endswith(".safetensors") and not name.startswith(sources.CALIBRATED)
        )
        if weights and (other := models_by_weights.setdefault(weights, model)) != model:
            raise BadInput(f"models: {other} and {model} have the same weights; name only one of them")


def _refuse_calibrated(planned: PlannedStudy, items: Mapping[str, Any]) -> None:
    """Refuse statistics that were measured on held-out problems, by id; confirming compares the prompts."""
    for model in planned.protocol.models:
        for path in planned.statistics_files(model).values():
            used = calibration.measured_problems(path).keys()
            for task, item in items.items():
                if shared := sorted(used & set(item["confirm"])):
                    raise BadInput(
                        f"{path}: was measured on held-out problems of {task} ({len(shared)}, the first is "
                        f"{shared[0]}); move it away and calibrate {model} on other problems"
                    )


def _refuse_without_answer_marks(planned: PlannedStudy) -> None:
    """Refuse a model without a mark that ends its thinking, in a study that evicts only while thinking."""
    if not planned.protocol.generation.think_only:
        return
    for model in planned.protocol.models:
        if not load.answer_marks(load.tokenizer(model, planned.home)):
            raise BadInput(
                f"generation.think_only: {model} has no token {vocabulary.THINK} and none that begins with "
                f"{vocabulary.BOXED}, so the end of its thinking cannot be recognised; leave out think_only "
                "or this model"
            )


def _measure_lengths(planned: PlannedStudy, items: Mapping[str, Any]) -> PromptLengths:
    lengths: PromptLengths = {}
    protocol, tasks_by_name = planned.protocol, planned.tasks
    extra_prompts = dict.fromkeys(protocol.extra_prompt(arm.name) for arm in protocol.arms)
    for model in protocol.models:
        tokenizer = load.tokenizer(model, planned.home)
        count_tokens = prompting.counter(tokenizer)
        words = transformers.AutoConfig.from_pretrained(sources.locate(model, planned.home)).vocab_size
        for task, extra_prompt in itertools.product(protocol.tasks, extra_prompts):
            task_object, name = tasks_by_name[task.name], task.name
            measure = partial(_prompt_size, tokenizer=tokenizer, query=task.query, extra_prompt=extra_prompt)
            first = held_out_guard.build(task_object, name, items[name]["dev"][0], count_tokens)
            _refuse_odd_prompt(model, words, partial(prompting.render, first, tokenizer, task.query, extra_prompt))
            sizes = [
                measure(held_out_guard.build(task_object, name, item, count_tokens)) for item in items[name]["dev"]
            ]
            retained_lengths = [size for size in sizes if protocol.exclusion_reason(size[0]) is None]
            if not retained_lengths:
                raise BadInput(f"exclude: excludes every development problem of {task.name}; raise prompt_tokens_above")
            if isinstance(task_object, FileTask | LmEvalTask):
                held_out_sizes = [
                    held_out_guard.measure_size(task_object, item, count_tokens, measure)
                    for item in items[name]["confirm"]
                ]
                retained_lengths += [size for size in held_out_sizes if protocol.exclusion_reason(size[0]) is None]
            lengths[model, task, extra_prompt] = retained_lengths
    return lengths


def _refuse_odd_prompt(model: str, words: int, render: Callable[[], tuple[list[int], list[int]]]) -> None:
    """Refuse a model whose template renders a problem otherwise each time, or with tokens that it has no row for."""
    context, query = render()
    if any((context, query) != render() for _ in range(2)):
        raise BadInput(
            f"model {model}: its chat template gives one problem another prompt each time; choose another model"
        )
    if (largest := max(*context, *query, 0)) >= words:
        raise BadInput(
            f"model {model}: its tokenizer gives token {largest}, but the model has only {words}; choose the tokenizer "
            "that belongs to it"
        )


def _prompt_size(problem: Problem, tokenizer: Any, query: str, extra_prompt: str) -> tuple[int, int]:
    context_tokens, query_tokens = prompting.render(problem, tokenizer, query, extra_prompt)
    return len(context_tokens), len(query_tokens)


def _refuse_long_prompts(planned: PlannedStudy, lengths: PromptLengths) -> None:
    """Refuse positions beyond those that a model was trained for, because they make it fail silently."""
    configs = {
        model: transformers.AutoConfig.from_pretrained(sources.locate(model, planned.home))
        for model in planned.protocol.models
    }
    networks = {model: small_network(config) for model, config in configs.items()}
    for (model, task, _), sizes in lengths.items():
        config = configs[model]
        if (longest := max(map(sum, sizes))) + task.max_new_tokens > config.max_position_embeddings:
            raise BadInput(
                f"tasks: {task.name}: a prompt of {longest} tokens and {task.max_new_tokens} new ones exceed "
                f"the {config.max_position_embeddings} positions of {model}; shorten it, or set [exclude] "
                "prompt_tokens_above"
            )
        if depends_on_company(networks[model], longest + task.max_new_tokens):
            raise BadInput(
                f"tasks: {task.name}: with texts of {longest + task.max_new_tokens} tokens the rotary angles "
                f"of {model} depend on the longest text of a batch, so a lane's answer depends on the other "
                "lanes of its batch; shorten the task, or choose another model"
            )
    _refuse_long_passages(planned, lengths)


def _refuse_long_passages(planned: PlannedStudy, lengths: PromptLengths) -> None:
    """Refuse passages that a policy feeds behind the text and that exceed the positions, as far as they are
    known before there is a text.

    A text whose every token ends a sentence has the shortest windows, so that no prompt is refused that fits;
    the engine refuses what a real text makes longer. If the policy evicts while decoding, the answer counts
    with its full length.
    """
    protocol = planned.protocol
    for (model, task, extra_prompt), sizes in lengths.items():
        config = transformers.AutoConfig.from_pretrained(sources.locate(model, planned.home))
        for arm in (arm for arm in protocol.arms if protocol.extra_prompt(arm.name) == extra_prompt):
            policy = protocol.policy(arm.name)
            covers_answer = policy.cadence.interval is not None
            token_count = max(context + (query + task.max_new_tokens) * covers_answer for context, query in sizes)
            token_ids = torch.zeros(token_count, dtype=torch.int64)
            asking_signals = (signal for signal in policy.needs if isinstance(signal, ExtraPromptSignal))
            passages = (passage for signal in asking_signals for passage in signal.passages(token_ids, frozenset({0})))
            if (last_position := token_count + max(map(len, passages), default=0)) > config.max_position_embeddings:
                raise BadInput(
                    f"arms: {arm.name!r} feeds extra tokens after texts of {token_count} tokens of "
                    f"{task.name}, up to position {last_position}, but {model} has only "
                    f"{config.max_position_embeddings}; shorten the task, or leave the arm out"
                )


def refuse_small_budgets(planned: PlannedStudy, lengths: PromptLengths, budgets: Iterable[Budget]) -> None:
    """Refuse a budget below what a policy may protect, on the shortest and the longest prompts: a share is
    smallest on the shortest, a pinned prompt largest on the longest. Of a budget that changes from round to
    round, the smallest counts.

    What the text decides, such as the length of a protected trunk, counts with its maximum: otherwise lanes
    whose text needs more would fail, in this arm alone, and would not be missing at random. Nor may both ends of
    `preserve` fill a budget: no arm would choose a slot, and all would be alike.
    """
    protocol, budgets = planned.protocol, tuple(budgets)
    preserve = protocol.generation.preserve
    remedy = "" if preserve is None else ", or let generation.preserve protect less"
    policies_by_arm = {arm.name: protocol.policy(arm.name) for arm in protocol.arms}
    extra_prompts = {arm.name: protocol.extra_prompt(arm.name) for arm in protocol.arms}
    for (model, task, extra_prompt), sizes in lengths.items():
        arms = (arm for arm, policy in policies_by_arm.items() if policy.evicts and extra_prompts[arm] == extra_prompt)
        evicting = {arm: policies_by_arm[arm] for arm in arms}
        full_use = planned.use(model, task.name)
        ends = sorted({min(sizes), max(sizes), max(sizes, key=sum)})
        for prompt, (arm, policy), budget in itertools.product(ends, evicting.items(), budgets):
            slots = budget.count_slots(prompt[0], full_use, slot := planned.slot(model, arm))
            if slot is not None and not 1 <= slots <= MOST:
                raise BadInput(f"budgets: {_budget_fault(budget, slots, slot, f'arm {arm!r} on {model}')}")
            slots = policy.cadence.smallest_budget(slots)
            if slots < (protected := _max_protected(policy, *prompt, slots)):
                raise BadInput(
                    f"budgets: {budget} gives {slots} slots for {task.name} ({prompt[0]} tokens), "
                    f"fewer than the {protected} that arm {arm!r} protects at most; raise the budget{remedy}"
                )
            if preserve is not None and not preserve.prompt and protected == slots:
                raise BadInput(
                    f"generation.preserve: protects all {slots} slots of budget {budget}, so no arm has any "
                    "slot to choose and all arms are alike; write fewer sinks or recent slots"
                )


def refuse_duplicate_budgets(planned: PlannedStudy, lengths: PromptLengths, budgets: Iterable[Budget]) -> None:
    """Refuse two budgets that give the same slots to some arm on every prompt of a model and task: the same
    lanes would count as two contrasts of the rule. lengths: of the measured prompts.
    """
    budgets, protocol = tuple(budgets), planned.protocol
    evicting = [arm.name for arm in protocol.arms if protocol.policy(arm.name).evicts]
    for (model, task, _), sizes in lengths.items():
        full_use = planned.use(model, task.name)
        for slot in dict.fromkeys(planned.slot(model, arm) for arm in evicting):
            budgets_by_slots: dict[tuple[int, ...], Budget] = {}
            for budget in budgets:
                slots = tuple(budget.count_slots(context, full_use, slot) for context, _ in sizes)
                if (other := budgets_by_slots.setdefault(slots, budget)) is not budget:
                    slot_text = "" if slot is None else f" of {slot.stored} bytes"
                    raise BadInput(
                        f"budgets: {other} and {budget} are the same slots{slot_text} for {model} on {task.name} "
                        f"({slots[0]} on a prompt of {sizes[0][0]} tokens); leave one out"
                    )


def _refuse_idle_budgets(planned: PlannedStudy, lengths: PromptLengths, budgets: Iterable[Budget]) -> None:
    """Refuse a budget at which no arm evicts, as the longest measured prompt with the longest answer fits, also in the
    smallest round. A routing that bounds may leave less of what fits.
    """
    protocol = planned.protocol
    policies = {arm.name: protocol.policy(arm.name) for arm in protocol.arms if arm.press is None}
    evicting = {arm: policy for arm, policy in policies.items() if policy.evicts}
    if any(policy.routing.bounds for policy in evicting.values()):
        return
    longest = {key: max(sizes, key=sum) for key, sizes in lengths.items()}
    most = max(sum(size) + task.max_new_tokens for (_, task, _), size in longest.items())
    for budget in budgets:
        room = (
            policy.cadence.smallest_budget(
                budget.count_slots(size[0], planned.use(model, task.name), planned.slot(model, arm))
            )
            - (sum(size) + task.max_new_tokens)
            for (model, task, _), size in longest.items()
            for arm, policy in evicting.items()
        )
        if min(room, default=-1) >= 0:
            raise BadInput(
                f"budgets: {budget} has room for every prompt with its answer, at most {most} tokens, so no "
                "arm would evict; write less"
            )


def _budget_fault(budget: Budget, slots: int, slot: Slot, owner: str) -> str:
    """Return the message about a budget that gives no slot, or more than there can be. owner: whose slots they are."""
    if slots > MOST:
        return f"{budget} gives {slots} slots of {owner}, over the limit of {MOST}; write less"
    least = slot.recent + slot.stored
    minimum = Budget(None, None, bytes=slot.heads * least)
    if budget.bytes_of is not None:
        minimum = Budget(None, None, bytes_of=-(-least // slot.computed))
    apart = f", including {slot.heads * slot.recent} for its latest slots" if slot.recent else ""
    return (
        f"{budget} is less than one slot of {owner}, which takes {slot.heads * least} bytes over all layers "
        f'and heads{apart}; write "{minimum}" or more'
    )


def _max_protected(policy: Policy, context: int, query: int, slots: int) -> int:
    """Return the most slots that a policy can come to protect after a context and a query of so many tokens: at the end
    of the context or, if it evicts while decoding, in a cache that has outgrown its budget. A policy that may exceed
    its budget needs room only for the slots that are protected by their position alone.
    """
    masks = [policy.protect.slots(torch.ones(context, dtype=torch.bool), slots, decoding=False)]
    if policy.cadence.interval is not None:
        tokens = context + query
        filled = torch.ones(max(tokens, slots) + LONG_ANSWER, dtype=torch.bool)
        prompt = torch.arange(len(filled)) < tokens
        masks.append(policy.protect.slots(filled, slots, decoding=True, prompt=prompt))
    return max(int(protected.sum()) if policy.exceeds else policy.reach(protected) for protected in masks)


def choose_lane_count(planned: PlannedStudy, model: str, lengths: PromptLengths) -> int:
    """Return how many lanes decode at once: as registered, or as many as fit into half of the free memory.

    Every lane is assumed to retain the whole longest development prompt.
    """
    protocol, generation = planned.protocol, planned.protocol.generation
    if generation.lanes_per_batch is not None:
        return generation.lanes_per_batch
    slots = max(
        context + query + task.max_new_tokens
        for (model_name, task, _), sizes in lengths.items()
        if model_name == model
        for context, query in sizes
    )
    config = transformers.AutoConfig.from_pretrained(sources.locate(model, planned.home))
    dtype = load.DTYPES[generation.dtype]
    requested = _requested_lanes(protocol)
    concurrent = engine.max_concurrent_lanes(config, dtype, torch.device(generation.device), slots, requested)
    return max(1, concurrent // (generation.workers or 1))


def max_lanes(protocol: Design) -> int:
    """Return the number that `choose_lane_count` never exceeds, on any machine."""
    return max(1, _requested_lanes(protocol) // (protocol.generation.workers or 1))


def _requested_lanes(protocol: Design) -> int:
    """Return the lanes of one batch, over all models."""
    return len(grid.cells(protocol)) * (protocol.generation.problems_per_batch or 1)
