"""Run the whole grid of an unlocked protocol on development problems with stand-in models, to see that it
runs.

Nothing is locked and no held-out problem is opened. A rehearsal measures the speed of the stand-ins, not that
of the registered models.
"""

from __future__ import annotations

import os
import resource
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from analysis.output.phases import At, Tell, phase
from protocol.acts.locking import fitting, frozen, measured_use, rule_checks, same_kept, sized
from protocol.evidence.refusals import BadInput
from protocol.evidence.run import records
from protocol.locked.planned import Planned
from protocol.plan import full_use, grid
from protocol.plan.design import Design
from protocol.running import estimate, progress, runner
from protocol.running.estimate import Batch
from protocol.running.executors import Execute, Job, Produced, Told
from protocol.running.executors.local import executor, held

__all__ = ["Rehearsal", "acted", "rehearse"]

REGISTRATION = "0" * 64  # the records cite it in place of a lock
STEPS = 32  # new tokens of the first batch that is only timed
SECONDS = 60.0  # limit of its decoding, for each model and task


class Ahead(NamedTuple):
    """Seconds that a phase will take: with answers as long as those rehearsed, and with answers at their
    longest.
    """

    seconds: float
    most: float


class Rehearsal(NamedTuple):
    """bodies: of every lane, by phase. registered_lanes: lanes that the registered study will decode, by
    phase. expected_time: how long these will take, in batches as wide as registered.

    seconds: of everything in `bodies`. peak_bytes: resident memory of the process, plus on a GPU torch's
    peak. same_kept: as the field of this name in a lock. full_use: as this field of a lock, on the rehearsed
    problems; empty if no budget is a share of it. detectable: from `rule_checks`, for the registered size.
    trace: one that [anatomy] would label; None without [anatomy].
    """

    bodies: dict[str, list[dict[str, Any]]]
    whole: dict[str, int]
    ahead: dict[str, Ahead]
    seconds: float
    peak_bytes: int
    same_kept: dict[str, Any]
    full_use: dict[str, Any]
    detectable: dict[str, Any]
    trace: dict[str, Any] | None = None


def acted(protocol: Design, tokens: int | None) -> Design:
    """Return the protocol as this machine can rehearse it: at most `tokens` new tokens, on the CPU in float32
    if the registered device is not available, with no more threads than cores.
    """
    generation = protocol.generation
    if generation.device == "cuda" and not torch.cuda.is_available():
        generation = generation._replace(device="cpu", dtype="float32")
    generation = generation._replace(threads=min(generation.threads, os.cpu_count() or 1))
    tasks = tuple(
        task._replace(max_new_tokens=min(task.max_new_tokens, tokens or task.max_new_tokens))
        for task in protocol.tasks
    )
    return replace(protocol, generation=generation, tasks=tasks)


def rehearse(planned: Planned, models: Mapping[str, str], problems: int, folder: Path) -> Rehearsal:
    """Run every cell of probe and confirm on the first `problems` development problems of each task, recorded
    below `folder` in the form of the study's records. models: the stand-in for each registered model.

    Raises BadInput for what registering would refuse before it reads the registered models' own files.
    """
    protocol = planned.protocol
    playing = planned._replace(protocol=played(protocol, models))
    items = frozen.items(playing)
    seen = rule_checks.detectable(protocol, items)
    playing = sized.sized(playing)
    if (widths := playing.widths) is not None:
        planned = planned._replace(widths={model: widths[other] for model, other in models.items()})
    lengths, _ = fitting.checked(playing, items)
    lanes = {model: fitting.lanes(playing, model, lengths) for model in models.values()}
    split = {name: item["dev"][:problems] for name, item in items.items()}
    used: dict[str, Any] = {}
    if measured_use.shares(protocol):
        found = measured_use.measured(playing, split)
        used = {model: found[other] for model, other in models.items()}
        planned = planned._replace(full_use=full_use.means(used))
        playing = playing._replace(full_use=full_use.means(found))
    started = time.monotonic()
    took = {name: Took(models) for name in phases(protocol)}
    bodies, whole = {}, {}
    for name, acting in phases(protocol).items():
        cells = grid.cells(acting)
        work = runner.units(cells, split, acting.generation.problems_per_batch)
        total = sum(len(unit.problems) for unit in work)
        with phase(f"rehearsing {name}") as tell:
            say = progress.reporter(total, runner.lanes(cells, split), partial(_tell, tell))
            execute = executor(planned._replace(protocol=acting), lanes, report=say)
            runner.record(
                folder,
                work,
                partial(map, took[name].timed(execute)),
                phase=name,
                registration=REGISTRATION,
                attempt=1,
                report=say,
            )
        recorded = records.read(folder / records.FOLDERS[name])
        bodies[name] = [record["body"] for record in recorded]
        whole[name] = runner.lanes(cells, {task: item[SPLIT[name]] for task, item in items.items()})
    seconds = time.monotonic() - started
    if (protocol.generation.problems_per_batch or 1) > problems:
        with phase("timing batches as wide as registered") as tell:
            say = progress.reporter(0, 0, lambda at: tell(At(at.more, heading=at.heading)))
            for name, acting in timed(protocol).items():
                _widely(planned, acting, took[name], items, lanes, say)
    if len(timed(protocol)) == 1:
        took = dict.fromkeys(took, took["probe"].with_those_of(took["confirm"]))
    run = fitting.shares_run(playing, items, lengths)
    ahead = {
        name: _ahead(
            took[name],
            acting,
            {
                (model, task): round(run[models[model], task] * len(item[SPLIT[name]]))
                for task, item in items.items()
                for model in models
            },
            lanes,
        )
        for name, acting in phases(protocol).items()
    }
    with phase("looking for arms that keep the same slots"):
        kept = same_kept.same_kept(playing, items)
    trace = None if protocol.anatomy is None else _traced(playing, split, lanes)
    return Rehearsal(bodies, whole, ahead, seconds, _peak_bytes(), kept, used, seen, trace)


def _traced(playing: Planned, split: Mapping[str, Sequence[str]], lanes: Mapping[str, int]) -> dict[str, Any]:
    """Label one trace of the first model and task; return how it ended, what it took, and the arms that
    failed.
    """
    from protocol.occlusion import body

    own, model = playing.protocol.anatomy, playing.protocol.models[0]
    assert own is not None
    task = next(iter(split))
    with phase("labelling one trace"):
        loaded, started = held(playing, lambda told: None)(model), time.monotonic()
        found = body.traced(playing, loaded, task, split[task][0], own.occlusion(), lanes.get(model)).body
    kept = found.get("kept", ())
    return {
        "task": task,
        "problem": split[task][0],
        "state": found["state"],
        "reason": found["reason"],
        "occlusions": sum(map(len, found.get("windows", {}).values())),
        "seconds": round(time.monotonic() - started, 1),
        "failed": sorted({f"{one['arm']}: {one['reason']}" for one in kept if "reason" in one}),
    }


SPLIT = {"probe": "dev", "confirm": "confirm"}


def _tell(tell: Tell, at: progress.At) -> None:
    tell(At(*at))


class Took:
    """The times of batches, by the registered model and the task. models: the stand-in for each registered
    model.
    """

    def __init__(self, models: Mapping[str, str]) -> None:
        self.models = models
        self.batches: dict[tuple[str, str], list[Batch]] = defaultdict(list)
        self.answers: dict[grid.Cell, list[int]] = defaultdict(list)  # tokens

    def with_those_of(self, other: Took) -> Took:
        """Return the times of both, for one set of cells."""
        both = Took(self.models)
        for took in (other, self):
            for kind, batches in took.batches.items():
                both.batches[kind] += batches
            both.answers.update(took.answers)
        return both

    def timed(self, execute: Execute) -> Execute:
        """Return an executor that runs the stand-ins, whose cells have the registered model's name, and
        records times.
        """

        def noted(job: Job) -> Produced:
            produced = execute(job._replace(model=self.models[job.model]))
            if (batch := estimate.batch(produced)) is not None:
                self.batches[job.model, job.task].append(batch)
            for (cell, _), (body, _) in produced.records.items():
                if body["state"] == "ok":
                    self.answers[cell].append(body["tokens"])
            return produced

        return noted


def spread(ids: Sequence[str], count: int) -> list[str]:
    """Return at most so many ids from all over the list: ids of a level are adjacent, often the easiest
    first.
    """
    count = min(count, len(ids))
    return [ids[place * len(ids) // count] for place in range(count)]


def timed(protocol: Design) -> dict[str, Design]:
    """Return the phases that are timed separately: a sweep confirms other arms and seeds than it probes,
    whose lanes take other times; without one the probe has every cell of the confirmation.
    """
    found = phases(protocol)
    return found if protocol.sweep is not None else {"probe": found["probe"]}


def _widely(
    planned: Planned,
    acting: Design,
    took: Took,
    items: Mapping[str, Any],
    lanes: Mapping[str, int],
    report: Callable[[Told], None],
) -> None:
    """Run a batch as wide as registered of each model and task: for a few tokens, and then for all that its
    task allows, or as many as it decodes within the time limit. Later tokens cost more, because caches are
    longer and evictions happen; if all tokens were allowed, its answers are counted too.
    """
    limit = {task.name: task.max_new_tokens for task in acting.tasks}
    together = acting.generation.problems_per_batch or 1
    split = {name: spread(item["dev"], together) for name, item in items.items()}
    read = held(planned, report)

    def ran(unit: runner.Unit, steps: int) -> Took:
        tasks = (task._replace(max_new_tokens=min(steps, task.max_new_tokens)) for task in acting.tasks)
        shorter = planned._replace(protocol=replace(acting, tasks=tuple(tasks)))
        own = Took(took.models)
        own.timed(executor(shorter, lanes, read=read, report=report))(Job(*unit))
        return own

    for unit in list(dict.fromkeys(runner.units(grid.cells(acting), split, together))):
        kind, steps = (unit.model, unit.task), STEPS
        own = ran(unit, steps)
        if own.batches[kind]:
            affordable = int(steps * SECONDS / max(own.batches[kind][0].decode, 1e-3))
            if (more := min(limit[unit.task], affordable)) >= 2 * steps:
                own, steps = ran(unit, more), more
        took.batches[kind] += own.batches[kind]
        if steps >= limit[unit.task]:
            took.answers.update(own.answers)


def _ahead(
    took: Took,
    acting: Design,
    problems: Mapping[tuple[str, str], int],
    lanes: Mapping[str, int],
) -> Ahead:
    """Return the time of a phase with so many problems that run, by model and task."""
    generation, cells = acting.generation, grid.cells(acting)
    limit = {task.name: task.max_new_tokens for task in acting.tasks}
    longest = {cell: [limit[cell.task]] for cell in cells}
    sums = []
    for lengths in (took.answers, longest):
        whole = 0.0
        for unit in runner.units(cells, {task: [""] for task in limit}):
            if measured := took.batches[unit.model, unit.task]:
                together, most = generation.problems_per_batch or 1, lanes[took.models[unit.model]]
                speed, count = estimate.speed(measured), problems[unit.model, unit.task]
                whole += estimate.seconds(speed, unit.cells, lengths, count, together, most)
        sums.append(whole)
    cores = (os.cpu_count() or 1) // generation.threads
    beside = max(1, min(generation.workers or 1, cores))
    return Ahead(*(whole / beside for whole in sums))


def played(protocol: Design, models: Mapping[str, str]) -> Design:
    """Return the protocol with the stand-ins' names. Raises BadInput if one stands in for two models."""
    if len(set(models.values())) < len(models):
        raise BadInput("--stand-in: one model stands in for two; the decision tells them apart, so name two")
    own = {field: models.get(value, value) for field, value in protocol.decision.own.items()}
    decision = replace(protocol.decision, own=own)
    return replace(protocol, models=tuple(models.values()), decision=decision)


def phases(protocol: Design) -> dict[str, Design]:
    """Return the designs that probe and confirm would run; with a sweep, confirm has its first candidate as
    the winner.
    """
    sweep = protocol.sweep
    confirmed = protocol if sweep is None else protocol.confirmed(sweep.candidates[0])
    return {"probe": protocol.probed(), "confirm": confirmed}


def _peak_bytes() -> int:
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts in KiB
    return resident + (torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0)
