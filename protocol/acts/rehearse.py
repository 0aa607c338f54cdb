"""Run the whole grid of a written protocol on development problems with stand-in models: would it run?

Nothing is locked and no held-out problem is opened. What a rehearsal measures is the stand-ins' speed, not
that of the registered models.
"""

import os
import resource
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from protocol.acts.locking import fitting, frozen, measured_use, rule_checks, same_kept, sized
from protocol.evidence.refusals import BadInput
from protocol.evidence.run import records
from protocol.locked.planned import Planned
from protocol.plan import full_use, grid
from protocol.plan.design import Design
from protocol.running import runner
from protocol.running.executors import Execute, Job, Produced
from protocol.running.executors.local import executor

__all__ = ["Rehearsal", "acted", "rehearse", "stand_ins"]

REGISTRATION = "0" * 64  # what the records cite in place of a lock


class Rehearsal(NamedTuple):
    """bodies: of every lane, by phase. whole: lanes that the registered study will decode, by phase.

    seconds: of everything that was run. peak_bytes: resident memory of the process, and on a GPU what torch
    took of its own. same_kept: as the check of this name in a lock. full_use: as this field of it, on the
    problems that were run; empty where no budget is a share of it. detectable: of `rule_checks`, of
    the registered size.
    """

    bodies: dict[str, list[dict[str, Any]]]
    whole: dict[str, int]
    seconds: float
    peak_bytes: int
    same_kept: dict[str, Any]
    full_use: dict[str, Any]
    detectable: dict[str, Any]


def stand_ins(protocol: Design, named: Sequence[str]) -> dict[str, str]:
    """The model to load for each registered one, from texts "registered=stand-in"; itself by default."""
    given = dict(_pair(text, protocol) for text in named)
    return {model: given.get(model, model) for model in protocol.models}


def acted(protocol: Design, tokens: int | None) -> Design:
    """The protocol as this machine can rehearse it: at most `tokens` new tokens, on the CPU in float32 where
    the registered device is not here, with no more threads than cores.
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
    """Every cell of probe and confirm on the first `problems` development problems of each task, recorded
    below `folder` as the study would record them. models: what to load for each registered model.

    Raises BadInput for what registering would refuse before it reads the registered models' own files.
    """
    protocol = planned.protocol
    playing = planned._replace(protocol=played(protocol, models))
    items = frozen.items(playing)
    seen = rule_checks.detectable(protocol, items)
    playing = sized.sized(playing)
    if (widths := playing.widths) is not None:
        planned = planned._replace(widths={model: widths[other] for model, other in models.items()})
    fitting.checked(playing, items)
    split = {name: item["dev"][:problems] for name, item in items.items()}
    used: dict[str, Any] = {}
    if measured_use.shares(protocol):
        found = measured_use.measured(playing, split)
        used = {model: found[other] for model, other in models.items()}
        planned = planned._replace(full_use=full_use.means(used))
        playing = playing._replace(full_use=full_use.means(found))
    started = time.monotonic()
    bodies, whole = {}, {}
    for phase, acting in phases(protocol).items():
        cells = grid.cells(acting)
        work = runner.units(cells, split, acting.generation.problems_per_batch)
        execute = executor(planned._replace(protocol=acting), {})
        runner.record(
            folder,
            work,
            partial(map, partial(_stood_in, execute, models)),
            phase=phase,
            registration=REGISTRATION,
            attempt=1,
            report=lambda progress: None,
        )
        recorded = records.read(folder / records.FOLDERS[phase])
        bodies[phase] = [record["body"] for record in recorded]
        which = "dev" if phase == "probe" else "confirm"
        whole[phase] = sum(len(items[cell.task][which]) for cell in cells)
    seconds = time.monotonic() - started
    kept = same_kept.same_kept(playing, items)
    return Rehearsal(bodies, whole, seconds, _peak_bytes(), kept, used, seen)


def played(protocol: Design, models: Mapping[str, str]) -> Design:
    """The protocol with the stand-ins' names. Raises BadInput where one would play two models."""
    if len(set(models.values())) < len(models):
        raise BadInput("--stand-in: one model stands in for two; the decision tells them apart, so name two")
    own = {field: models.get(value, value) for field, value in protocol.decision.own.items()}
    decision = replace(protocol.decision, own=own)
    return replace(protocol, models=tuple(models.values()), decision=decision)


def phases(protocol: Design) -> dict[str, Design]:
    """What probe and confirm would run; of a sweep, confirm with its first candidate as the winner."""
    sweep = protocol.sweep
    confirmed = protocol if sweep is None else protocol.confirmed(sweep.candidates[0])
    return {"probe": protocol.probed(), "confirm": confirmed}


def _stood_in(execute: Execute, models: Mapping[str, str], job: Job) -> Produced:
    """Loads the stand-in; the cells keep the registered model's name."""
    return execute(job._replace(model=models[job.model]))


def _pair(text: str, protocol: Design) -> tuple[str, str]:
    model, equals, other = text.partition("=")
    if not equals or not other or model not in protocol.models:
        raise BadInput(
            f"--stand-in {text}: write MODEL=STAND-IN with MODEL one of {', '.join(protocol.models)}"
        )
    return model, other


def _peak_bytes() -> int:
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts in KiB
    return resident + (torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0)
