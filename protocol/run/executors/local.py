"""Run jobs in this process: one model is loaded at a time, and the lanes of a job decode in one batch."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from decimal import Decimal
from functools import cache
from time import perf_counter
from typing import Any, NamedTuple

import torch
import transformers
from transformers import PreTrainedModel

from policies import Policy
from protocol import engine
from protocol.engine.max_concurrent import max_concurrent_for
from protocol.evidence import records
from protocol.formats import canonical
from protocol.formats.record_fields import format_reads
from protocol.formats.vocabulary import FULL, READS
from protocol.layers.layer_kinds import evictable
from protocol.models.load import LoadedModel, load
from protocol.plan.design import Design
from protocol.plan.generation import Generation
from protocol.plan.grid import Cell, budget_of, policy_of
from protocol.run.executors import Decoder, Execute, Job, JobPrompts, JobResult, JobUpdate, Loading, RenderedPrompt
from protocol.run.executors.answers import AnswerKeeper, list_extra_prompts
from protocol.run.executors.own_code import confine
from protocol.tasks.held_out_guard import HeldOutProblems
from protocol.workspace.planned_study import PlannedStudy


class PromptGroup(NamedTuple):
    """A problem's prompt and the cells that share it."""

    rendered: RenderedPrompt
    cells: tuple[Cell, ...]
    request: engine.Request


def configure_torch(generation: Generation) -> None:
    """Set torch's threads and deterministic mode for the process."""
    torch.set_num_threads(generation.threads)
    torch.use_deterministic_algorithms(True)
    if generation.device == "cuda":  # otherwise deterministic matrix products are refused on CUDA
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def make_executor(
    planned: PlannedStudy,
    lanes: Mapping[str, int],
    held_out_problems: HeldOutProblems | None = None,
    load_model: Callable[[str], LoadedModel] | None = None,
    watch: Callable[[Cell, Policy], Policy] = lambda cell, policy: policy,
    report: Callable[[JobUpdate], object] = lambda told: None,
) -> Execute:
    """Return the function that runs one job in this process, which then knows its answers. Arguments are those of
    `make_decoder`. held_out_problems: held-out problems, which are not built here; seeds are drawn with their key, if
    any.
    """
    get_model = load_model or cache_models(planned, report)
    decoder = make_decoder(planned, lanes, get_model, watch, report)
    keeper = AnswerKeeper(
        planned, list_extra_prompts(planned), held_out_problems, lambda model: get_model(model).tokenizer
    )

    def execute(job: Job) -> JobResult:
        get_model(job.model)
        start = perf_counter()
        result = decoder.decode(job, keeper.render(job))
        decoder.check()
        return keeper.grade(job, result)._replace(seconds=perf_counter() - start)

    return execute


def make_decoder(
    planned: PlannedStudy,
    lanes: Mapping[str, int],
    load_model: Callable[[str], LoadedModel] | None = None,
    watch: Callable[[Cell, Policy], Policy] = lambda cell, policy: policy,
    report: Callable[[JobUpdate], object] = lambda told: None,
) -> Decoder:
    """Return what decodes one job at a time from its prompts; its texts have no grades. Sets torch's threads and
    deterministic mode for the process.

    lanes: how many decode at once, by model. Records say with whom a lane decoded where its model has a number here;
        else as many do as are registered, or fit.
    load_model: returns the model of a job, called for each job; by default the registered model is loaded
        and one model is cached at a time.
    watch: returns a policy that replaces the policy of a cell and makes the same decisions.
    report: receives progress updates.
    """
    protocol = planned.protocol
    configure_torch(protocol.generation)
    transformers.utils.logging.disable_progress_bar()  # only our progress display is shown
    get_model = load_model or cache_models(planned, report)
    task_settings = {task.name: task for task in protocol.tasks}
    compares_reads = protocol.decision.memory == READS
    slot_of = cache(planned.slot)
    policy = cache(lambda cell: watch(cell, policy_of(protocol, cell, slot_of(cell.model, cell.arm))))

    def slots_of(cell: Cell, prompt_tokens: int) -> int | None:
        full_use = planned.use(cell.model, cell.task)
        return budget_of(protocol, cell, prompt_tokens, full_use, slot_of(cell.model, cell.arm))

    with confine(protocol) as confinement:
        extra_prompts = list_extra_prompts(planned)

    def confine_job(job: Job, network: PreTrainedModel) -> AbstractContextManager[Callable[[], None]]:
        if confinement is None:
            return nullcontext(lambda: None)
        return confinement.confine_run(network, lambda: [policy(cell) for cell in job.cells])

    def decode(job: Job, job_prompts: JobPrompts) -> JobResult:
        if confinement is not None:
            confinement.begin_group(job.model, job.task)
        model, start = get_model(job.model), perf_counter()
        task, groups = task_settings[job.task], list[PromptGroup]()
        lane_records: dict[tuple[Cell, str], tuple[dict[str, Any], dict[str, Any]]] = {}
        leaders = _missing_leaders(protocol, job.cells) if protocol.outcome else ()
        cells_of = _group_by_extra_prompt((*job.cells, *leaders), extra_prompts)
        for rendered in job_prompts.prompts:
            cells, prompt = cells_of[rendered.extra_prompt], engine.Prompt(rendered.context, rendered.query)
            forked_lanes = (
                engine.Lane(
                    key="/".join(map(str, cell)),
                    policy=policy(cell),
                    budget=slots_of(cell, len(prompt.context)) if policy(cell).evicts else None,
                    seed=job_prompts.seeds[cell.seed],
                )
                for cell in cells
            )
            request = engine.Request(rendered.problem, prompt, tuple(forked_lanes))
            if reason := protocol.exclusion_reason(len(prompt.context)):
                for cell, lane in zip(cells, request.lanes, strict=True):
                    if cell not in leaders:
                        body = _prompt_fields(rendered, cell, lane) | _unanswered_fields("excluded", reason)
                        lane_records[cell, rendered.problem] = (body, {})
            else:
                groups.append(PromptGroup(rendered, cells, request))
        if not groups:
            return JobResult(lane_records, (), perf_counter() - start)
        requests = [group.request for group in groups]
        marks = model.answer_marks if protocol.generation.think_only else None
        all_lanes = sum(len(request.lanes) for request in requests)
        at_once = lanes.get(job.model) or protocol.generation.lanes_per_batch or all_lanes
        if protocol.outcome:  # a lane is fed a token as soon as the full cache says it
            at_once = all_lanes
        elif job.model not in lanes and protocol.generation.is_batch_invariant:
            fit = max_concurrent_for(model.network, requests, task.max_new_tokens, marks=marks or ())
            at_once = min(at_once, max(1, fit // (protocol.generation.workers or 1)))
        with confine_job(job, model.network) as check:
            engine_run = engine.run(
                model,
                requests,
                max_new_tokens=task.max_new_tokens,
                max_concurrent=min(at_once, all_lanes),
                marks=marks or (),
                follows_full=protocol.outcome is not None,
                report=lambda progress: check() or report(progress),
                **protocol.generation.engine_settings(),
            )
        outcomes = {
            (cell, group.rendered.problem): (group, lane, answers.prefill_seconds, outcome)
            for group, answers in zip(groups, engine_run.answers, strict=True)
            for cell, lane, outcome in zip(group.cells, group.request.lanes, answers.outcomes, strict=True)
        }
        lane_keys = [(cell, problem) for problem in job.problems for cell in job.cells if (cell, problem) in outcomes]
        answered_problems = list(dict.fromkeys(problem for _, problem in lane_keys))
        batch = {"problems": answered_problems, "lanes": engine_run.max_concurrent}
        heads = count_kv_heads(model)
        trajectories = _collect_trajectories((outcomes[lane_key][3] for lane_key in lane_keys), heads)
        side_file = canonical.digest(list(trajectories.values()))
        citations = {key: records.make_citation(side_file, number) for number, key in enumerate(trajectories)}
        for lane_key in lane_keys:
            group, lane, seconds, outcome = outcomes[lane_key]
            body = _prompt_fields(group.rendered, lane_key[0], lane)
            if job.model in lanes:
                joined = {} if isinstance(outcome, engine.LaneFailure) else {"joined": outcome.joined}
                body["batch"] = batch | joined
            costs = {"prefill_seconds": f"{seconds:.3f}"}
            if isinstance(outcome, engine.LaneFailure):
                body |= _unanswered_fields("failed", outcome.reason)
            else:
                body |= _outcome_fields(model, outcome, heads, marks)
                if compares_reads:
                    fed_tokens = len(outcome.token_ids) - (outcome.stop == "length")
                    body["cache"].setdefault("reads", format_reads(outcome.slots, heads, fed_tokens))
                body["trajectory"] = citations[outcome.slots, outcome.allocated]
                costs["decode_seconds"] = f"{outcome.seconds:.3f}"
            lane_records[lane_key] = (body, costs)
        return JobResult(lane_records, tuple(trajectories.values()), perf_counter() - start)

    return Decoder(decode) if confinement is None else Decoder(decode, confinement.is_due, confinement.check)


def cache_models(planned: PlannedStudy, report: Callable[[JobUpdate], object]) -> Callable[[str], LoadedModel]:
    """Return a function that loads a model as registered and caches it until another one is requested."""
    settings = planned.protocol.generation
    models: dict[str, LoadedModel] = {}

    def get_model(name: str) -> LoadedModel:
        if name not in models:
            models.clear()
            report(Loading(name))
            models[name] = load(name, planned.home, dtype=settings.dtype, device=settings.device)
        return models[name]

    return get_model


def device_name(device: str) -> str:
    """Return the name of the registered device on this machine."""
    return str(torch.cuda.get_device_name()) if device == "cuda" else device


def _prompt_fields(rendered: RenderedPrompt, cell: Cell, lane: engine.Lane) -> dict[str, Any]:
    return {
        "cell": cell._asdict(),
        "problem": rendered.problem,
        "prompt": rendered.digest,
        "prompt_tokens": len(rendered.context),
        "slots": lane.budget,
    }


def _missing_leaders(design: Design, cells: Sequence[Cell]) -> tuple[Cell, ...]:
    """Return the cells of the full cache that these cells follow and that are not among them."""
    (full,) = (arm.name for arm in design.arms if design.is_full(arm.name))
    leaders = dict.fromkeys(Cell(cell.model, cell.task, FULL, full, cell.seed) for cell in cells)
    return tuple(leader for leader in leaders if leader not in cells)


def _group_by_extra_prompt(cells: Sequence[Cell], extra_prompts: Mapping[str, str]) -> dict[str, tuple[Cell, ...]]:
    """Group the cells by their extra prompt, in order."""
    groups: dict[str, tuple[Cell, ...]] = {}
    for cell in cells:
        extra_prompt = extra_prompts[cell.arm]
        groups[extra_prompt] = (*groups.get(extra_prompt, ()), cell)
    return groups


def _collect_trajectories(
    outcomes: Iterable[engine.Outcome | engine.LaneFailure], heads: int
) -> dict[tuple[tuple[int, ...], ...], dict[str, Any]]:
    """Return the trajectories by slots and allocated bytes, in the order of the lanes; lanes often share one."""
    return {
        (slots, allocated): {"held": list(slots), "allocated": list(allocated), "heads": heads}
        for slots, allocated in dict.fromkeys(
            (outcome.slots, outcome.allocated) for outcome in outcomes if isinstance(outcome, engine.Outcome)
        )
    }


def count_kv_heads(model: LoadedModel) -> int:
    """Count the KV heads over all full-attention layers, which is what budgets apply to."""
    return evictable(model.network.config) * int(model.network.config.num_key_value_heads)


def _outcome_fields(
    model: LoadedModel, outcome: engine.Outcome, heads: int, marks: frozenset[int] | None
) -> dict[str, Any]:
    """marks: the token ids that end thinking; None if they are not looked for."""
    slots, bytes_allocated = outcome.slots, outcome.allocated
    divergence = {
        "agrees": "".join(str(int(position.agrees)) for position in outcome.divergences),
        "nats": [round(1_000_000 * position.nats) for position in outcome.divergences],
    }
    fed = len(outcome.token_ids) - (outcome.stop == "length")
    mark_positions = (position for position, token in enumerate(outcome.token_ids, 1) if marks and token in marks)
    return {
        "state": "ok",
        "reason": "",
        "text": model.tokenizer.decode(outcome.token_ids, skip_special_tokens=False),
        "tokens": len(outcome.token_ids),
        **({} if marks is None else {"thought": next(mark_positions, None)}),
        "stop": outcome.stop,
        **({"divergence": divergence} if outcome.divergences else {}),
        "cache": {
            "mean": _format_ratio(sum(slots), len(slots) * heads),
            "peak": _format_ratio(max(slots), heads),
            "prefill_end": _format_ratio(slots[0], heads),
            "mean_bytes": sum(bytes_allocated) // len(bytes_allocated),
            "peak_bytes": max(bytes_allocated),
            "state_bytes": outcome.state_bytes,
            **({} if outcome.reads is None else {"reads": _format_ratio(outcome.reads, max(1, fed * heads))}),
            **({"window_bytes": outcome.window_bytes} if outcome.window_bytes else {}),
            "events": [list(event) for event in outcome.events],
            "granted": list(outcome.granted),
        },
    }


def _unanswered_fields(state: str, reason: str) -> dict[str, Any]:
    empty_fields = dict.fromkeys(("stop", "answer", "grade", "cache", "trajectory"))
    return {"state": state, "reason": reason, "text": "", "tokens": 0, "grade_reason": "", **empty_fields}


def _format_ratio(total: int, parts: int) -> str:
    return f"{Decimal(total) / Decimal(parts):.6f}"
