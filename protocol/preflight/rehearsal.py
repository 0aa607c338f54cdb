"""Run the whole grid of an unlocked protocol on development problems with stand-in models, to see that it runs.

Nothing is locked and no held-out problem is opened. A rehearsal measures the speed of the stand-ins, not that
of the registered models.
"""

from __future__ import annotations

import os
import resource
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from protocol.evidence import records
from protocol.formats.instruments import INSTRUMENTS
from protocol.formats.progress_display import Progress, phase
from protocol.formats.registry import load_attribute
from protocol.plan import full_use, grid
from protocol.plan.design import Design
from protocol.preflight import feasibility, full_cache_use, planned_size, same_slots, slot_sizes
from protocol.preflight.written_study import spread_ids, with_stand_ins
from protocol.run import progress, runner, time_estimate
from protocol.run.executors import Execute, Job, JobResult, JobUpdate
from protocol.run.executors.local import cache_models, make_executor
from protocol.run.time_estimate import Batch
from protocol.workspace.planned_study import PlannedStudy

PLACEHOLDER_LOCK = "0" * 64  # the records cite it in place of a lock
INITIAL_STEPS = 32  # new tokens of the first batch that is only timed
MAX_DECODE_SECONDS = 60.0  # limit of its decoding, for each model and task
SHORT_STUDY = 600.0  # seconds of decoding, by narrow batches, which say too much; up to here no wide one is timed


class ExpectedTime(NamedTuple):
    """Seconds that a phase will take: with answers as long as those rehearsed, and with answers at their longest."""

    seconds: float
    max_seconds: float


class Rehearsal(NamedTuple):
    """bodies: of every lane, by phase. registered_lanes: lanes that the registered study will decode, by
    phase. expected_time: how long these will take, in batches as wide as registered.

    seconds: of all lanes. peak_bytes: resident memory of the process, plus on a GPU torch's
    peak. same_kept: as the field of this name in a lock. full_use: as this field of a lock, on the rehearsed
    problems; empty if no budget is a share of it. detectable: from `planned_size`, for the registered size.
    instruments: of each registered one that rehearses, its values and the lines about them. lanes: how many were
    decoded; `bodies` has those of both phases in each.
    """

    bodies: dict[str, list[dict[str, Any]]]
    registered_lanes: dict[str, int]
    expected_time: dict[str, ExpectedTime]
    seconds: float
    peak_bytes: int
    same_kept: dict[str, Any]
    full_use: dict[str, Any]
    detectable: dict[str, Any]
    instruments: list[tuple[dict[str, Any], list[str]]]
    lanes: int


def fit_to_machine(protocol: Design, tokens: int | None) -> Design:
    """Return the protocol as this machine can rehearse it: at most `tokens` new tokens, on the CPU in float32
    if the registered device is not available, with no more threads than cores.
    """
    generation = protocol.generation
    if generation.device == "cuda" and not torch.cuda.is_available():
        generation = replace(generation, device="cpu", dtype="float32")
    generation = replace(generation, threads=min(generation.threads, os.cpu_count() or 1))
    tasks = tuple(
        replace(task, max_new_tokens=min(task.max_new_tokens, tokens or task.max_new_tokens)) for task in protocol.tasks
    )
    return replace(protocol, generation=generation, tasks=tasks)


def rehearse(
    planned: PlannedStudy, models: Mapping[str, str], items: Mapping[str, Any], problems: int, folder: Path
) -> Rehearsal:
    """Run every cell of probe and confirm once, on the first `problems` development problems of each task, recorded
    below `folder` as a probe records them. models: the stand-in for each registered model. items: from `written_study`.

    Raises BadInput for what registering would refuse before it reads the registered models' own files.
    """
    protocol = planned.protocol
    stand_in_plan = planned._replace(protocol=with_stand_ins(protocol, models))
    effects = planned_size.detectable_effects(protocol, items)
    stand_in_plan = slot_sizes.with_widths(stand_in_plan)
    if (widths := stand_in_plan.widths) is not None:
        planned = planned._replace(widths={model: widths[stand_in] for model, stand_in in models.items()})
    lengths, _ = feasibility.check_feasibility(stand_in_plan, items)
    lanes = {model: feasibility.choose_lane_count(stand_in_plan, model, lengths) for model in models.values()}
    split = {name: item["dev"][:problems] for name, item in items.items()}
    full_use_field: dict[str, Any] = {}
    if full_cache_use.share_budgets(protocol):
        stand_in_use = full_cache_use.measure_full_cache(stand_in_plan, split)
        full_use_field = {model: stand_in_use[stand_in] for model, stand_in in models.items()}
        planned = planned._replace(full_use=full_use.read_means(full_use_field))
        stand_in_plan = stand_in_plan._replace(full_use=full_use.read_means(stand_in_use))
        feasibility.refuse_small_budgets(stand_in_plan, lengths, full_cache_use.share_budgets(protocol))
        feasibility.refuse_duplicate_budgets(stand_in_plan, lengths, protocol.all_budgets)
    if all(model == stand_in for model, stand_in in models.items()):
        with phase("hashing the weights"):
            weights = planned.weights()
            feasibility.refuse_other_weights(planned, weights)
            feasibility.refuse_duplicate_models(weights)
    started = time.monotonic()
    timings = {name: Timings(models) for name in protocol.designs_by_phase()}
    bodies: dict[str, list[dict[str, Any]]] = {}
    registered_lanes: dict[str, int] = {}
    recorded: set[grid.Cell] = set()  # decoded already: the probe has most cells of the confirmation
    for name, design in protocol.designs_by_phase().items():
        cells = grid.cells(design)
        new_cells = [cell for cell in cells if cell not in recorded]
        units = runner.split_into_units(new_cells, split, design.generation.problems_per_batch)
        total = sum(len(unit.problems) for unit in units)
        with phase(f"rehearsing {name}") as update:
            report = progress.make_reporter(total, runner.count_lanes(new_cells, split), update)
            execute = make_executor(planned._replace(protocol=design), lanes, report=report)
            runner.record_units(
                folder,
                units,
                partial(map, timings[name].time_batches(execute)),
                phase="probe",
                registration=PLACEHOLDER_LOCK,
                attempt=1,
                report=report,
            )
        every_body = [record["body"] for record in records.read_records(folder / records.FOLDERS["probe"])]
        bodies[name] = [body for body in every_body if grid.Cell(**body["cell"]) in {*cells}]
        timings[name].answers.update({cell: timings["probe"].answers[cell] for cell in recorded & {*cells}})
        recorded |= {*cells}
        registered_lanes[name] = runner.count_lanes(cells, {task: item[SPLIT[name]] for task, item in items.items()})
    seconds = time.monotonic() - started
    run_shares = feasibility.run_shares(stand_in_plan, items, lengths)

    def estimate_phases() -> dict[str, ExpectedTime]:
        is_merged = len(timed_phases(protocol)) == 1
        both = timings["probe"].merge(timings["confirm"])
        return {
            name: _expected_time(
                both if is_merged else timings[name],
                design,
                {
                    (model, task): round(run_shares[models[model], task] * len(item[SPLIT[name]]))
                    for task, item in items.items()
                    for model in models
                },
                lanes,
            )
            for name, design in protocol.designs_by_phase().items()
        }

    expected_time = estimate_phases()
    is_long = sum(phase_time.max_seconds for phase_time in expected_time.values()) > SHORT_STUDY
    if (protocol.generation.problems_per_batch or 1) > problems and is_long:
        with phase("timing batches as wide as registered") as update:
            report = progress.make_reporter(0, 0, lambda now: update(Progress(now.more, heading=now.heading)))
            for name, design in timed_phases(protocol).items():
                _time_wide_batches(planned, design, timings[name], items, lanes, report)
        expected_time = estimate_phases()
    with phase("checking whether arms keep the same slots"):
        same_slots_field = same_slots.find_same_slots(stand_in_plan, items)
    instruments = [
        load_attribute(instrument.rehearsal)(stand_in_plan, split, lanes)
        for instrument in INSTRUMENTS
        if instrument.rehearsal and instrument.name in protocol.instruments
    ]
    return Rehearsal(
        bodies,
        registered_lanes,
        expected_time,
        seconds,
        _peak_bytes(),
        same_slots_field,
        full_use_field,
        effects,
        instruments,
        len(every_body),
    )


SPLIT = {"probe": "dev", "confirm": "confirm"}


class Timings:
    """The times of batches, by the registered model and the task. models: the stand-in for each registered model."""

    def __init__(self, models: Mapping[str, str]) -> None:
        self.models = models
        self.batches: dict[tuple[str, str], list[Batch]] = defaultdict(list)
        self.answers: dict[grid.Cell, list[int]] = defaultdict(list)  # tokens

    def merge(self, other: Timings) -> Timings:
        """Return the times of both, for one set of cells."""
        merged = Timings(self.models)
        for timings in (other, self):
            for key, batches in timings.batches.items():
                merged.batches[key] += batches
            merged.answers.update(timings.answers)
        return merged

    def time_batches(self, execute: Execute) -> Execute:
        """Return an executor that runs the stand-ins, whose cells name the registered model, and records times."""

        def execute_and_record(job: Job) -> JobResult:
            produced = execute(job._replace(model=self.models[job.model]))
            if (batch := time_estimate.summarize_batch(produced)) is not None:
                self.batches[job.model, job.task].append(batch)
            for (cell, _), (body, _) in produced.records.items():
                if body["state"] == "ok":
                    self.answers[cell].append(body["tokens"])
            return produced

        return execute_and_record


def timed_phases(protocol: Design) -> dict[str, Design]:
    """Return the phases that are timed separately: a sweep confirms other arms and seeds than it probes,
    whose lanes take other times; without one the probe has every cell of the confirmation.
    """
    designs = protocol.designs_by_phase()
    return designs if protocol.sweep is not None else {"probe": designs["probe"]}


def _time_wide_batches(
    planned: PlannedStudy,
    design: Design,
    timings: Timings,
    items: Mapping[str, Any],
    lanes: Mapping[str, int],
    report: Callable[[JobUpdate], None],
) -> None:
    """Run a batch as wide as registered of each model and task: for a few tokens, and then for all that its
    task allows, or as many as it decodes within the time limit. Later tokens cost more, because caches are
    longer and evictions happen; if all tokens were allowed, its answers are counted too.
    """
    limit = {task.name: task.max_new_tokens for task in design.tasks}
    problems_per_batch = design.generation.problems_per_batch or 1
    split = {name: spread_ids(item["dev"], problems_per_batch) for name, item in items.items()}
    load_model = cache_models(planned, report)

    def run_unit(unit: Job, steps: int) -> Timings:
        tasks = (replace(task, max_new_tokens=min(steps, task.max_new_tokens)) for task in design.tasks)
        shorter = planned._replace(protocol=replace(design, tasks=tuple(tasks)))
        unit_timings = Timings(timings.models)
        unit_timings.time_batches(make_executor(shorter, lanes, load_model=load_model, report=report))(unit)
        return unit_timings

    for unit in list(dict.fromkeys(runner.split_into_units(grid.cells(design), split, problems_per_batch))):
        key, steps = (unit.model, unit.task), INITIAL_STEPS
        unit_timings = run_unit(unit, steps)
        if unit_timings.batches[key]:
            affordable_steps = int(steps * MAX_DECODE_SECONDS / max(unit_timings.batches[key][0].decode, 1e-3))
            if (longer_steps := min(limit[unit.task], affordable_steps)) >= 2 * steps:
                unit_timings, steps = run_unit(unit, longer_steps), longer_steps
        timings.batches[key] += unit_timings.batches[key]
        if steps >= limit[unit.task]:
            timings.answers.update(unit_timings.answers)


def _expected_time(
    timings: Timings, design: Design, problems: Mapping[tuple[str, str], int], lanes: Mapping[str, int]
) -> ExpectedTime:
    """Return the time of a phase with so many problems that run, by model and task."""
    generation, cells = design.generation, grid.cells(design)
    limit = {task.name: task.max_new_tokens for task in design.tasks}
    longest = {cell: [limit[cell.task]] for cell in cells}
    sums = []
    for lengths in (timings.answers, longest):
        phase_seconds = 0.0
        for unit in runner.split_into_units(cells, {task: [""] for task in limit}):
            if batches := timings.batches[unit.model, unit.task]:
                problems_per_batch, max_lanes = generation.problems_per_batch or 1, lanes[timings.models[unit.model]]
                speed, count = time_estimate.fit_speed(batches), problems[unit.model, unit.task]
                phase_seconds += time_estimate.predict_seconds(
                    speed, unit.cells, lengths, count, problems_per_batch, max_lanes
                )
        sums.append(phase_seconds)
    cores = (os.cpu_count() or 1) // generation.threads
    worker_count = max(1, min(generation.workers or 1, cores))
    return ExpectedTime(*(phase_seconds / worker_count for phase_seconds in sums))


def _peak_bytes() -> int:
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts in KiB
    return resident + (torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0)
