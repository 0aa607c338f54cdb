"""A model's trace of one problem with its full cache, and the boundary of its answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from policies import Mark
from policies.full import full
from protocol import engine, grading
from protocol.models.load import LoadedModel
from protocol.plan.task import Task
from protocol.tasks import held_out_guard, prompting
from protocol.tasks.problem import Problem
from protocol.workspace.planned_study import PlannedStudy


class Graded(NamedTuple):
    text: str
    grade: str


@dataclass(frozen=True)
class Decoder:
    """How traces and continuations are decoded: greedily at temperature 0, and otherwise as in `[generation]`.

    lanes: how many decode at once; None for as many as fit in half of the free memory. seed: of the noise of every
    lane, whatever its own is, so that all continuations of a problem share the noise of its trace.
    """

    model: LoadedModel
    prefill_chunk: int | None
    attention: str | None
    lanes: int | None
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0

    def run(
        self, requests: Sequence[engine.Request], new_tokens: int
    ) -> list[tuple[engine.Outcome | engine.LaneFailure, ...]]:
        """Return one outcome for each lane, request by request, all in one batch. No eviction while a lane decodes."""
        requests = [
            request._replace(lanes=tuple(lane._replace(seed=self.seed) for lane in request.lanes))
            for request in requests
        ]
        count = sum(len(request.lanes) for request in requests)
        result = engine.run(
            self.model,
            requests,
            max_new_tokens=new_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            max_concurrent=None if self.lanes is None else min(self.lanes, count),
            prefill_chunk=self.prefill_chunk,
            first_event=new_tokens + 1,
            attention=self.attention,
        )
        return [answers.outcomes for answers in result.answers]

    def text(self, token_ids: Sequence[int]) -> str:
        return str(self.model.tokenizer.decode(list(token_ids), skip_special_tokens=False))


class Trace(NamedTuple):
    """token_ids: of the answer, without its stop token. refused: why there is none; otherwise empty."""

    problem: Problem
    prompt: engine.Prompt
    token_ids: tuple[int, ...]
    graded: Graded
    refused: str = ""

    @property
    def fed_tokens(self) -> tuple[int, ...]:
        return self.prompt.context + self.prompt.query


Grading = Callable[[str], Graded]


class PosedProblem(NamedTuple):
    problem: Problem
    prompt: engine.Prompt
    grade: Grading


def make_decoder(planned: PlannedStudy, model: LoadedModel, lanes: int | None, *, is_sampled: bool) -> Decoder:
    """is_sampled: draw tokens at the temperature and top_p of the study, with the noise of its first seed."""
    generation = planned.protocol.generation
    greedy = Decoder(model, generation.prefill_chunk, generation.attention, lanes)
    if not is_sampled:
        return greedy
    settings = generation.engine_settings()
    return replace(greedy, temperature=settings["temperature"], top_p=settings["top_p"], seed=planned.protocol.seeds[0])


def pose_problem(planned: PlannedStudy, model: LoadedModel, task: Task, problem: str) -> PosedProblem:
    """Return a development problem with the prompt of arms without extra prompts. Raises as the guard's `build`."""
    counter = prompting.counter(model.tokenizer)
    built = held_out_guard.build(planned.tasks[task.name], task.name, problem, counter)
    context, query = prompting.render(built, model.tokenizer, task.query)
    return PosedProblem(built, engine.Prompt(tuple(context), tuple(query)), make_grader(planned, task, built))


def make_grader(planned: PlannedStudy, task: Task, problem: Problem) -> Grading:
    """Return the function that grades an answer to this problem with the task's grader."""
    grader = grading.get_grader(planned.tasks[task.name].grader)

    def grade_text(text: str) -> Graded:
        return Graded(text, grading.best_grade(grader.grade, problem.gold, text).status)

    return grade_text


def full_cache_lane() -> engine.Lane:
    return engine.Lane("control", full(), None, 0)


def decode_traces(decode: Decoder, posed: Sequence[PosedProblem], new_tokens: int) -> list[Trace]:
    """Return the answers with the full cache, of at most `new_tokens` tokens, in one batch."""
    requests = [engine.Request(problem.id, prompt, (full_cache_lane(),)) for problem, prompt, _ in posed]
    return [
        Trace(problem, prompt, (), Graded("", ""), outcome.reason)
        if isinstance(outcome, engine.LaneFailure)
        else Trace(problem, prompt, outcome.token_ids, grade(decode.text(outcome.token_ids)))
        for (problem, prompt, grade), (outcome,) in zip(posed, decode.run(requests, new_tokens), strict=True)
    ]


def reasoning_length(model: LoadedModel, token_ids: Sequence[int], boundary: str | None, tail: int | None) -> int:
    """Return the number of answer tokens before its boundary: before the token with the first character of
    the last `boundary` in it; without one, all but the last `tail`.
    """
    spans = model.lines(token_ids, Mark(boundary, "", within=True)) if boundary else ()
    if spans:
        return spans[-1].start
    return max(0, len(token_ids) - (tail or 0))
