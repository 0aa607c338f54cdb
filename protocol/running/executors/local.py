"""Run jobs in this process: one model is loaded at a time, and the lanes of a job decode in one batch."""

import itertools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import cache
from time import perf_counter
from typing import Any, NamedTuple

import torch
import transformers

from policies import Policy
from protocol import engine, grading
from protocol.evidence.bytes import canonical
from protocol.evidence.run import late_randomness, records
from protocol.layers.kinds import evictable
from protocol.locked.planned import Planned
from protocol.models.load import LoadedModel, load
from protocol.plan.grid import Cell, budget_of, policy_of
from protocol.running.executors import Execute, Job, Loading, Produced, Told
from protocol.tasks import door, prompting
from protocol.tasks.door import Opened
from protocol.tasks.problem import Problem

__all__ = ["device_name", "executor", "held"]


class Asking(NamedTuple):
    """A problem's prompt and the cells that share it."""

    problem: Problem
    cells: tuple[Cell, ...]
    request: engine.Request


def executor(
    planned: Planned,
    lanes: Mapping[str, int],
    opened: Opened | None = None,
    read: Callable[[str], LoadedModel] | None = None,
    watch: Callable[[Cell, Policy], Policy] = lambda cell, policy: policy,
    report: Callable[[Told], object] = lambda told: None,
) -> Execute:
    """Return the function that runs one job. Sets torch's threads and deterministic mode for the process.

    lanes: how many decode at once, by model; all lanes of a job for a model without a number.
    held_out_problems: held-out problems, which are not built here; seeds are drawn with their key, if any.
    load_model: returns the model of a job, called for each job; by default the registered model is loaded
        and one model is cached at a time.
    watch: returns a policy that replaces the policy of a cell and makes the same decisions.
    report: receives progress updates.
    """
    protocol = planned.protocol
    torch.set_num_threads(protocol.generation.threads)
    torch.use_deterministic_algorithms(True)
    if protocol.generation.device == "cuda":  # otherwise deterministic matrix products are refused on CUDA
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    transformers.utils.logging.disable_progress_bar()  # only our progress display is shown
    model_of = read or held(planned, report)
    graders: dict[str, grading.Grader] = {}
    registered, known = {task.name: task for task in protocol.tasks}, planned.tasks
    slot_of = cache(planned.slot)
    policy = cache(lambda cell: watch(cell, policy_of(protocol, cell, slot_of(cell.model, cell.arm))))
    asks_of = {arm.name: protocol.asks(arm.name) for arm in protocol.arms}
    key = opened.held_out.key() if opened else None

    def execute(job: Job) -> Produced:
        model, started = model_of(job.model), perf_counter()
        task, grader = registered[job.task], known[job.task].grader
        if grader not in graders:
            graders[grader] = grading.grader(grader)
        counter = prompting.counter(model.tokenizer)
        problems = [
            opened.problem(job.model, job.task, problem)
            if opened
            else door.build(known[job.task], job.task, problem, counter)
            for problem in job.problems
        ]
        asking: list[Asking] = []
        produced: dict[tuple[Cell, str], tuple[dict[str, Any], dict[str, Any]]] = {}
        for problem, (asks, cells) in itertools.product(problems, _by_asks(job.cells, asks_of).items()):
            context, query = prompting.render(problem, model.tokenizer, task.query, asks)
            prompt = engine.Prompt(tuple(context), tuple(query))
            forked = (
                engine.Lane(
                    key="/".join(map(str, cell)),
                    policy=policy(cell),
                    budget=budget_of(
                        protocol,
                        cell,
                        len(prompt.context),
                        planned.use(cell.model, cell.task),
                        slot_of(cell.model, cell.arm),
                    ),
                    seed=late_randomness.seed(key, cell.seed),
                )
                for cell in cells
            )
            request = engine.Request(problem.id, prompt, tuple(forked))
            if reason := protocol.excludes(len(prompt.context)):
                for cell, lane in zip(cells, request.lanes, strict=True):
                    body = _asked(problem, request, cell, lane) | _without_answer("excluded", reason)
                    produced[cell, problem.id] = (body, {})
            else:
                asking.append(Asking(problem, cells, request))
        if not asking:
            return Produced(produced, (), perf_counter() - started)
        all_lanes = sum(len(one.cells) for one in asking)
        marks = model.answer_marks if protocol.generation.think_only else None
        ran = engine.run(
            model,
            [one.request for one in asking],
            max_new_tokens=task.max_new_tokens,
            temperature=float(protocol.generation.temperature),
            top_p=float(1 if protocol.generation.top_p is None else protocol.generation.top_p),
            max_concurrent=min(all_lanes, lanes.get(job.model, all_lanes)),
            prefill_chunk=protocol.generation.prefill_chunk,
            first_event=protocol.generation.waits,
            marks=marks or (),
            attention=protocol.generation.attention,
            report=report,
        )
        answered = {
            (cell, one.problem.id): (one, lane, answers.prefill_seconds, outcome)
            for one, answers in zip(asking, ran.answers, strict=True)
            for cell, lane, outcome in zip(one.cells, one.request.lanes, answers.outcomes, strict=True)
        }
        places = [
            (cell, problem.id) for problem in problems for cell in job.cells if (cell, problem.id) in answered
        ]
        answering = list(dict.fromkeys(problem for _, problem in places))
        batch = {"problems": answering, "lanes": ran.max_concurrent}
        heads = heads_of(model)
        trajectories = _trajectories((answered[place][3] for place in places), heads)
        side_file = canonical.digest(list(trajectories.values()))
        cited = {each: records.cite(side_file, number) for number, each in enumerate(trajectories)}
        for place in places:
            one, lane, seconds, outcome = answered[place]
            body = _asked(one.problem, one.request, place[0], lane) | {"batch": dict(batch)}
            costs = {"prefill_seconds": f"{seconds:.3f}"}
            if isinstance(outcome, engine.LaneFailure):
                body |= _without_answer("failed", outcome.reason)
            else:
                body |= _answered(model, outcome, heads, marks)
                body["batch"]["joined"] = outcome.joined
                body["trajectory"] = cited[outcome.held, outcome.allocated]
                body |= _graded(one.problem.gold, body["text"], graders[grader], grading.second(grader))
                costs["decode_seconds"] = f"{outcome.seconds:.3f}"
            produced[place] = (body, costs)
        return Produced(produced, tuple(trajectories.values()), perf_counter() - started)

    return execute


def held(planned: Planned, report: Callable[[Told], object]) -> Callable[[str], LoadedModel]:
    """Return a function that loads a model as registered and caches it until another one is requested."""
    settings = planned.protocol.generation
    held: dict[str, LoadedModel] = {}

    def read(name: str) -> LoadedModel:
        if name not in held:
            held.clear()
            report(Loading(name))
            held[name] = load(name, planned.home, dtype=settings.dtype, device=settings.device)
        return held[name]

    return read


def device_name(device: str) -> str:
    """Return the name of the registered device on this machine."""
    return str(torch.cuda.get_device_name()) if device == "cuda" else device


def _asked(problem: Problem, request: engine.Request, cell: Cell, lane: engine.Lane) -> dict[str, Any]:
    return {
        "cell": cell._asdict(),
        "problem": problem.id,
        "prompt": prompting.digest(request.prompt.context, request.prompt.query),
        "prompt_tokens": len(request.prompt.context),
        "slots": lane.budget,
    }


def _by_asks(cells: Sequence[Cell], asks_of: Mapping[str, str]) -> dict[str, tuple[Cell, ...]]:
    """Group the cells by their extra prompt, in order."""
    found: dict[str, tuple[Cell, ...]] = {}
    for cell in cells:
        asks = asks_of[cell.arm]
        found[asks] = (*found.get(asks, ()), cell)
    return found


def _trajectories(
    outcomes: Iterable[engine.Outcome | engine.LaneFailure], heads: int
) -> dict[tuple[tuple[int, ...], ...], dict[str, Any]]:
    """Return the trajectories by slots and allocated bytes, in the order of the lanes; lanes often share one.
    """
    return {
        (one.held, one.allocated): {"held": list(one.held), "allocated": list(one.allocated), "heads": heads}
        for one in outcomes
        if isinstance(one, engine.Outcome)
    }


def heads_of(model: LoadedModel) -> int:
    """Count the KV heads over all full-attention layers, which is what budgets apply to."""
    return evictable(model.network.config) * int(model.network.config.num_key_value_heads)


def _graded(
    gold: grading.Gold, text: str, grader: grading.Grader, second: grading.Grader | None
) -> dict[str, str | None]:
    """Return the grade fields; the score is present with the grade "scored" alone."""
    grade = grading.best(grader.grade, gold, text)
    graded = {"answer": grade.answer, "grade": grade.status, "grade_reason": grade.reason}
    graded |= {} if grade.score is None else {"score": grade.score}
    if second is None:
        return graded
    other = grading.best(second.grade, gold, text)
    scored = {} if other.score is None else {"score_second": other.score}
    return graded | {"grade_second": other.status} | scored


def _answered(
    model: LoadedModel, outcome: engine.Outcome, heads: int, marks: frozenset[int] | None
) -> dict[str, Any]:
    """marks: the token ids that end thinking; None if they are not looked for."""
    held, allocated = outcome.held, outcome.allocated
    places = (place for place, token in enumerate(outcome.token_ids, 1) if marks and token in marks)
    return {
        "state": "ok",
        "reason": "",
        "text": model.tokenizer.decode(outcome.token_ids, skip_special_tokens=False),
        "tokens": len(outcome.token_ids),
        **({} if marks is None else {"thought": next(places, None)}),
        "stop": outcome.stop,
        "cache": {
            "mean": _six(sum(held), len(held) * heads),
            "peak": _six(max(held), heads),
            "prefill_end": _six(held[0], heads),
            "mean_bytes": sum(allocated) // len(allocated),
            "peak_bytes": max(allocated),
            "state_bytes": outcome.state_bytes,
            **({"window_bytes": outcome.window_bytes} if outcome.window_bytes else {}),
            "events": [list(event) for event in outcome.events],
            "granted": list(outcome.granted),
        },
    }


def _without_answer(state: str, reason: str) -> dict[str, Any]:
    nothing = dict.fromkeys(("stop", "answer", "grade", "cache", "trajectory"))
    return {"state": state, "reason": reason, "text": "", "tokens": 0, "grade_reason": "", **nothing}


def _six(total: int, parts: int) -> str:
    return f"{Decimal(total) / Decimal(parts):.6f}"
