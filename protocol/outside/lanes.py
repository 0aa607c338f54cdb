"""The records of a study whose outputs another harness made: one for every registered lane."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, TypeAlias

import numpy as np

from analysis.compare.scored_answers import ResultError, ScoredAnswer, digest_json
from protocol.evidence.registration import Registration
from protocol.formats.json_text import format_decimal
from protocol.lock.lock import Lock
from protocol.outside import output_files, released
from protocol.outside.output_files import Answers, ArmAnswer, ArmFiles, ArmRun
from protocol.tasks.outside_task import OutsideTask

MAX_IDS = 3  # ids in a refusal
CLOCK_SKEW = timedelta(minutes=5)  # by which the clocks of two machines may differ
Place: TypeAlias = tuple[str, str, str]  # arm, what the files call the task, id in its pool


def make_bodies(study: Registration, outputs: ArmFiles) -> list[dict[str, Any]]:
    """Return the body of the record of every registered lane, in the order of the grid. A lane without a row, or whose
    row has no score, has failed.

    Raises ResultError for files that are not of this study: of another model, of problems that were not released, made
    before the claim by their own clock, with a problem twice, or in which two arms were asked different things.
    """
    answers, tasks = output_files.read_answers(outputs, study.protocol), released.claimed_tasks(study)
    _refuse_other_runs(study, answers)
    tables = {table["name"]: table.get("called", table["name"]) for table in study.protocol["tasks"]}
    rows = _group_rows(study, answers.rows, {called: tasks[name] for name, called in tables.items()})
    bodies = []
    for model, task, budget, arm, seed in study.lock.content["grid"]:
        for problem, name in tasks[task].released().items():
            row = rows.get((arm, tables[task], name), {}).get(seed)
            cell = {"model": model, "task": task, "budget": budget, "arm": arm, "seed": seed}
            head = {"registration": study.lock.digest, "phase": "confirm", "cell": cell, "problem": problem}
            bodies.append(head | _read_outcome(row, tasks[task], name))
    return bodies


def _refuse_other_runs(study: Registration, answers: Answers) -> None:
    """Raise ResultError for a run that says of itself that it is of another model, older than the claim or younger than
    its reading, and for one that stands for two arms: made at the same time, with the same scores.
    """
    (model,) = study.protocol["models"]
    first_times = {entry.event: datetime.fromisoformat(entry.time) for entry in reversed(study.entries)}
    claimed, read = first_times["claim"], first_times.get("outputs", datetime.now(UTC))
    owners: dict[tuple[str, str, frozenset[tuple[str, ...]]], tuple[str, str]] = {}
    for arm, runs in answers.runs.items():
        for run in runs:
            if run.model and run.model != model and not run.model.endswith(f"/{model}"):
                raise ResultError(
                    f"{run.name}: model: says that {run.model!r} ran, but {model!r} is registered for {arm}"
                )
            if (times := _parse_time(run)) is None:
                continue
            earliest, latest = times
            if latest < claimed - CLOCK_SKEW:
                raise ResultError(
                    f"{run.name}: says that it was made at {latest.isoformat(timespec='minutes')}, before the "
                    f"claim at {claimed.isoformat(timespec='minutes')}; run the problems that the claim "
                    "released, after the claim"
                )
            if earliest > read + CLOCK_SKEW:
                raise ResultError(
                    f"{run.name}: says that it was made at {earliest.isoformat(timespec='minutes')}, which is "
                    "after it was read"
                )
            scores = frozenset(
                (row.answer.task, row.answer.id, row.answer.seed, str(row.answer.score))
                for row in answers.rows
                if row.file.name == run.name
            )
            owner, name = owners.setdefault((run.made, run.run, scores), (arm, run.name))
            if owner != arm:
                raise ResultError(f"{run.name}: has the time and scores of {name}; each arm needs its own run")


def _parse_time(run: ArmRun) -> tuple[datetime, datetime] | None:
    """Return the earliest and the latest instant at which a run can have been made by the time that it states, which
    differ where it has no time zone; None where it states none.
    """
    try:
        made = datetime.fromisoformat(run.made)
    except ValueError:
        return None
    if made.tzinfo is not None:
        return made, made
    return made.replace(tzinfo=timezone(timedelta(hours=14))), made.replace(tzinfo=timezone(timedelta(hours=-12)))


def _group_rows(
    study: Registration, rows: Sequence[ArmAnswer], tasks: Mapping[str, OutsideTask]
) -> dict[Place, dict[int, ArmAnswer]]:
    """Return the rows by arm, task and id, then by registered seed. tasks: by what the files call them."""
    seeds = study.protocol["seeds"]
    only_task = next(iter(tasks)) if len(tasks) == 1 else ""
    seeds_by_arm = {arm: {row.answer.seed for row in rows if row.arm == arm} for arm in {row.arm for row in rows}}
    grouped: dict[Place, dict[int, ArmAnswer]] = {}
    ids = {task: {*made.released().values()} for task, made in tasks.items()}
    measures: dict[str, ArmAnswer] = {}
    for row in rows:
        task, name, at = row.answer.task or only_task, row.answer.id, f"{row.file.name}: {row.where}"
        if task not in tasks:
            raise ResultError(f"{at}: task: {task!r} is not registered; the registered tasks are {', '.join(tasks)}")
        if name not in ids[task]:
            unreleased = sorted({each.answer.id for each in rows if each.arm == row.arm} - ids[task])
            raise ResultError(
                f"{row.file.name}: id: {len(unreleased)} problems of {row.arm} were not released by the claim "
                f"({', '.join(unreleased[:MAX_IDS])}); run only the ids in outside/released.json"
            )
        seed = seeds[0] if len(seeds_by_arm[row.arm]) == len(seeds) == 1 else _parse_seed(row.answer.seed, seeds, at)
        lane = grouped.setdefault((row.arm, task, name), {})
        if seed in lane:
            raise ResultError(f"{at}: id: {name!r} occurs twice in {row.arm}, first in {lane[seed].where}")
        lane[seed] = row
        _refuse_other_question(tasks[task], name, row.answer, at)
        first = measures.setdefault(task, row)
        if first.answer.measure != row.answer.measure:
            raise ResultError(
                f"{at}: {row.answer.measure}: is a different measure from {first.answer.measure} of {first.arm}"
            )
        if not tasks[task].has_scores and row.answer.score not in (0.0, 1.0) and not math.isnan(row.answer.score):
            raise ResultError(f"{at}: {row.answer.score:g}: is neither 0 nor 1; register scores = true for {task}")
    _refuse_differing_questions(grouped)
    return grouped


def _parse_seed(text: str, seeds: Sequence[int], at: str) -> int:
    if text not in map(str, seeds):
        raise ResultError(
            f"{at}: seed: {text!r} is not registered; the registered seeds are {', '.join(map(str, seeds))}"
        )
    return int(text)


def _refuse_other_question(task: OutsideTask, name: str, answer: ScoredAnswer, at: str) -> None:
    """Raise ResultError for a row that says that something else was asked than the pool does."""
    said = {what.rpartition(": ")[2]: digest for what, digest in answer.question}
    for field, text in task.pool[name].items():
        if said.get(field, digest_json(text)) != digest_json(text):
            raise ResultError(
                f"{at}: {field}: {name!r} has a question that differs from that in the pool, {task.path.name}"
            )


def _refuse_differing_questions(grouped: Mapping[Place, Mapping[int, ArmAnswer]]) -> None:
    """Raise ResultError where two rows of one problem say that they were asked different things."""
    first: dict[tuple[str, str, str], tuple[str, ArmAnswer]] = {}
    for (_, task, name), lane in grouped.items():
        for row in lane.values():
            for what, digest in (*row.answer.question, *([row.answer.prompt] if row.answer.prompt else [])):
                known, other = first.setdefault((task, name, what), (digest, row))
                if known != digest:
                    raise ResultError(
                        f"{row.file.name}: {row.where}: {what}: of {name!r} differs between {other.arm} and "
                        f"{row.arm}, so the two arms did not answer the same question"
                    )


def _read_outcome(row: ArmAnswer | None, task: OutsideTask, name: str) -> dict[str, Any]:
    """Return the fields of a body that say what a row says. row: None without one."""
    question = None if row is None else [row.answer.question, row.answer.prompt]
    unseen = dict.fromkeys(("prompt_tokens", "stop", "cache", "trajectory", "grade"))
    fields = unseen | {
        "source": None if row is None else {"file": row.file.sha256, "where": row.where},
        "prompt": digest_json(task.name, name, question),
        "state": "failed",
        "reason": "the files have no row for it" if row is None else "its row has no score",
    }
    if row is None or math.isnan(row.answer.score):
        return fields
    return fields | {"state": "ok", "reason": ""} | _grade(row.answer.score, has_scores=task.has_scores)


def _grade(score: float, *, has_scores: bool) -> dict[str, Any]:
    if has_scores:
        return {"grade": "scored", "score": format_decimal(score)}
    return {"grade": "correct" if score else "wrong"}


def simulate_lane(
    locked: Lock, cell: Sequence[Any], problem: str, rng: np.random.Generator
) -> tuple[dict[str, Any], None]:
    """Return the body of a simulated lane that ended well, without its registration and phase; it has no trajectory."""
    model, task, budget, arm, seed = cell
    has_scores = task in locked.content["checks"]["scored"]
    body = {
        "cell": {"model": model, "task": task, "budget": budget, "arm": arm, "seed": seed},
        "problem": problem,
        "source": {"file": "0" * 64, "where": "simulated"},
        "state": "ok",
        "reason": "",
        "prompt": hashlib.sha256(problem.encode()).hexdigest(),
        **dict.fromkeys(("prompt_tokens", "stop", "cache", "trajectory")),
        **_grade(int(rng.integers(11)) / 10 if has_scores else float(rng.integers(2)), has_scores=has_scores),
    }
    return body, None
