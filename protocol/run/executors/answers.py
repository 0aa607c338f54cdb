"""Who knows the answers of a job: it builds the problems, renders their prompts and grades texts, and runs no policy.

Workers get prompts and give back texts. Where an arm runs code that is not of this project, the answers are in a
process of their own, which imports none of that code (docs/decisions/57-own-code.md).
"""

import multiprocessing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from protocol import grading
from protocol.evidence import late_randomness
from protocol.formats.refusals import Refusal
from protocol.models.load import tokenizer as load_tokenizer
from protocol.run.executors import Job, JobPrompts, JobResult, RenderedPrompt, own_code
from protocol.run.executors.held_out_problems import UnbuiltProblems
from protocol.tasks import held_out_guard, prompting
from protocol.tasks.held_out_guard import HeldOutProblems
from protocol.tasks.problem import Problem
from protocol.workspace.planned_study import PlannedStudy

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class AnswerKeeper:
    """Renders the prompts of jobs, and grades their texts. extra_prompts: by arm. tokenizer_of: by model."""

    def __init__(
        self,
        planned: PlannedStudy,
        extra_prompts: Mapping[str, str],
        held_out_problems: HeldOutProblems | None,
        tokenizer_of: "Callable[[str], PreTrainedTokenizerBase]",
    ) -> None:
        self._settings = {task.name: task for task in planned.protocol.tasks}
        self._tasks, self._extra_prompts = planned.tasks, extra_prompts
        self._held_out_problems, self._tokenizer_of = held_out_problems, tokenizer_of
        self._key = held_out_problems.held_out.key() if held_out_problems else None
        self._grader = cache(grading.get_grader)
        self._golds: dict[tuple[str, str, str], grading.Gold] = {}

    def render(self, job: Job) -> JobPrompts:
        """Return the prompts of a job, and keep the answers of its problems until its texts are graded."""
        tokenizer, query = self._tokenizer_of(job.model), self._settings[job.task].query
        count, prompts = prompting.counter(tokenizer), []
        extra_prompts = dict.fromkeys(self._extra_prompts[cell.arm] for cell in job.cells)
        for problem in [self._build(job, name, count) for name in job.problems]:
            self._golds[job.model, job.task, problem.id] = problem.gold
            for extra_prompt in extra_prompts:
                context, after = prompting.render(problem, tokenizer, query, extra_prompt)
                digest = prompting.digest(context, after)
                prompts.append(RenderedPrompt(problem.id, extra_prompt, tuple(context), tuple(after), digest))
        seeds = {cell.seed: late_randomness.draw_seed(self._key, cell.seed) for cell in job.cells}
        return JobPrompts(tuple(prompts), seeds)

    def grade(self, job: Job, result: JobResult) -> JobResult:
        """Return the result of a job whose prompts were rendered here, with the grades of its texts."""
        name = self._tasks[job.task].grader
        for (_, problem), (body, _) in result.records.items():
            if body["state"] == "ok" and "divergence" in body:
                agreement = grading.grade_agreement(body["divergence"]["agrees"])
                body |= {"answer": None, "grade": agreement.status, "grade_reason": "", "score": agreement.score}
            elif body["state"] == "ok":
                gold = self._golds[job.model, job.task, problem]
                body |= grade_fields(gold, body["text"], self._grader(name), grading.second_grader(name))
        for problem in job.problems:
            self._golds.pop((job.model, job.task, problem), None)
        return result

    def _build(self, job: Job, problem: str, count: Callable[[str], int]) -> Problem:
        if self._held_out_problems:
            return self._held_out_problems.problem(job.model, job.task, problem)
        return held_out_guard.build(self._tasks[job.task], job.task, problem, count)


def grade_fields(
    gold: grading.Gold, text: str, grader: grading.Grader, second: grading.Grader | None
) -> dict[str, str | None]:
    """Return the grade fields; the score is present with the grade "scored" alone."""
    grade = grading.best_grade(grader.grade, gold, text)
    fields = {"answer": grade.answer, "grade": grade.status, "grade_reason": grade.reason}
    fields |= {} if grade.score is None else {"score": grade.score}
    if second is None:
        return fields
    second_grade = grading.best_grade(second.grade, gold, text)
    second_score = {} if second_grade.score is None else {"score_second": second_grade.score}
    return fields | {"grade_second": second_grade.status} | second_score


class RemoteKeeper:
    """An `AnswerKeeper` in another process."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def render(self, job: Job) -> JobPrompts:
        prompts: JobPrompts = self._ask("render", job)
        return prompts

    def grade(self, job: Job, result: JobResult) -> JobResult:
        graded: JobResult = self._ask("grade", job, result)
        return graded

    def _ask(self, *request: Any) -> Any:
        try:
            self._connection.send(request)
            answer = self._connection.recv()
        except (EOFError, ConnectionError):
            raise Refusal("executor: the process that keeps the answers was killed; run the command again") from None
        if isinstance(answer, Refusal):
            raise answer
        return answer


def list_extra_prompts(planned: PlannedStudy) -> dict[str, str]:
    """Return the extra prompt of each arm."""
    return {arm.name: planned.protocol.extra_prompt(arm.name) for arm in planned.protocol.arms}


@contextmanager
def open_keeper(
    planned: PlannedStudy, held_out_problems: HeldOutProblems | UnbuiltProblems | None
) -> Iterator[AnswerKeeper | RemoteKeeper]:
    """Open the keeper of workers: in this process, or in one that imports no code of an arm where some arm runs code
    that is not of this project. Its refusals are raised here.
    """
    prepared = planned, list_extra_prompts(planned), held_out_problems
    if not own_code.is_run(planned.protocol):
        yield make_keeper(*prepared)
        return
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve_answers, args=(theirs, *prepared))
    process.start()
    theirs.close()
    try:
        yield RemoteKeeper(ours)
    finally:
        ours.close()
        process.terminate()
        process.join()


def make_keeper(
    planned: PlannedStudy, extra_prompts: Mapping[str, str], held_out_problems: HeldOutProblems | UnbuiltProblems | None
) -> AnswerKeeper:
    """Return a keeper in this process."""
    tokenizer_of = cache(lambda model: load_tokenizer(model, planned.home))
    if isinstance(held_out_problems, UnbuiltProblems):
        held_out_problems = held_out_problems.open_all(planned)
    return AnswerKeeper(planned, extra_prompts, held_out_problems, tokenizer_of)


def serve_answers(requests: Connection, *prepared: Any) -> None:
    """Answer a `RemoteKeeper` until its end of `requests` closes. prepared: arguments of `make_keeper`."""
    with suppress(EOFError, ConnectionError, KeyboardInterrupt):
        keeper = None
        while True:
            operation, *arguments = requests.recv()
            try:
                keeper = keeper or make_keeper(*prepared)
                requests.send(getattr(keeper, operation)(*arguments))
            except Refusal as refusal:
                requests.send(refusal)
            except Exception as error:
                requests.send(Refusal(f"a batch failed: {error!r}"))
