"""Estimate how long a study takes on a machine that may not be available: from constants, without running it."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil
import torch

from protocol.formats.progress_display import phase
from protocol.formats.refusals import BadInput
from protocol.instruments.planning import estimate, machines, rate_measurement, workload
from protocol.instruments.planning.cost_model import ArmSeconds, Rates
from protocol.instruments.planning.estimate import Estimate
from protocol.instruments.planning.workload import Load, UserInputs
from protocol.lock import frozen_problems, lock
from protocol.workspace.planned_study import PlannedStudy

__all__ = ["estimate_study"]

UNCERTAINTY_FACTOR = 1.3  # uncertainty of a measurement here, in both directions


def estimate_study(planned: PlannedStudy, machine_name: str, inputs: UserInputs, price: float | None) -> Estimate:
    """Raise BadInput for an unknown machine, an unknown shape of a model, and missing problems."""
    protocol, generation = planned.protocol, planned.protocol.generation
    machine = None if machine_name.strip() == machines.LOCAL else machines.find_machine(machine_name)
    items = _read_items(planned)
    with phase("counting lanes, slots and tokens"):
        loads = workload.list_loads(planned, items, inputs)
    rates_by_model: dict[str, tuple[Rates, Rates, Rates]] = {}
    if machine is None:
        assumptions: list[str] = []
        device = generation.device
        if device == "cuda" and not torch.cuda.is_available():
            raise BadInput('--on here: torch finds no "cuda" here, which is registered; name a machine')
        torch.set_num_threads(min(generation.threads, os.cpu_count() or 1))
        for model in protocol.models:
            with phase(f"measuring this machine at the shape of {model}") as update:
                rates, unmeasured = rate_measurement.measure_rates(
                    _measurement_request(model, loads, planned), device, tell=update
                )
            rates_by_model[model] = _with_uncertainty(rates)
            assumptions += [
                f"{arm}: as another arm, since it was not measured: {reason}" for arm, reason in unmeasured.items()
            ]
        assumptions.append(f"weights read and digested at {rates.load / 1e9:g} GB a second")
        cores = max(1, (os.cpu_count() or 1) // generation.threads)
        process_count = 1 if device == "cuda" else max(1, min(generation.workers or 1, cores))
        name, memory = "this machine", float(_free_memory(device))
    else:
        rates_by_model = {model: machines.machine_rates(machine, generation.dtype) for model in protocol.models}
        assumptions = _describe_assumptions(machine)
        process_count, memory = machine.devices, machine.memory
        name = f"{machine.devices} x {machine.name}"
    share = memory * estimate.USABLE_SHARE / (1 if machine else process_count)
    return estimate.estimate_study(
        loads,
        rates_by_model,
        generation,
        machine=name,
        batches_at_once=process_count,
        memory=share,
        lanes=_lanes_by_model(planned),
        price=price,
        assumed=assumptions,
    )


def _read_items(planned: PlannedStudy) -> dict[str, dict[str, list[str]]]:
    """Return the problems of the tasks that are available."""
    try:
        return frozen_problems.freeze_items(planned)
    except BadInput as refusal:
        has_counts = all(task.dev and task.confirm for task in planned.protocol.tasks)
        if has_counts:
            return {}  # the protocol has the counts, the options the prompt lengths
        raise refusal


def _measurement_request(
    model: str, loads: Sequence[Load], planned: PlannedStudy
) -> rate_measurement.MeasurementRequest:
    model_loads = [load for load in loads if load.model == model]
    longest_load = max(model_loads, key=lambda load: load.longest)
    arms = {name: arm for load in model_loads for name, arm in load.arms.items()}
    lanes = _lanes_by_model(planned)[model] or len(longest_load.kinds) * longest_load.problems_per_batch
    generation = planned.protocol.generation
    return rate_measurement.MeasurementRequest(
        longest_load.shape, generation.dtype, longest_load.prompt, lanes, generation.interval, arms
    )


def _with_uncertainty(rates: Rates) -> tuple[Rates, Rates, Rates]:
    """Return the measured rates between a slower and a faster variant."""

    def scale(factor: float) -> Rates:
        host = rates.host

        def scale_pair(pair: tuple[float, float]) -> tuple[float, float]:
            return pair[0] / factor, pair[1] / factor

        def scale_arm(arm_rates: ArmSeconds) -> ArmSeconds:
            return ArmSeconds(*map(scale_pair, arm_rates))

        return rates._replace(
            **{
                name: getattr(rates, name) * factor
                for name in ("linear", "attention", "watched", "rows", "weights", "cache", "load")
            },
            host=host._replace(
                forward=host.forward / factor,
                layer=host.layer / factor,
                pool=host.pool / factor,
                lane=scale_pair(host.lane),
                join=scale_pair(host.join),
                logit=host.logit / factor,
                noise=host.noise / factor,
                arm=scale_arm(host.arm),
            ),
            arms={name: scale_arm(rates_of_arm) for name, rates_of_arm in rates.arms.items()},
        )

    return scale(1 / UNCERTAINTY_FACTOR), rates, scale(UNCERTAINTY_FACTOR)


def _describe_assumptions(machine: machines.Machine) -> list[str]:
    """Return the constants of a machine that nobody has measured."""
    assumption = machines.load_constants()["assumed"]
    parts = [
        part
        for part in ("share", "host", "load")
        if not any(constant.startswith(part) for constant in machine.overrides)
    ]
    if not parts:
        return []
    descriptions = {"share": "shares of the peaks that are reached", "host": "the host's seconds", "load": "loading"}
    return [f"{', '.join(descriptions[part] for part in parts)}: assumed on {assumption['date']}, docs/planning.md"]


def _free_memory(device: str) -> int:
    if device == "cuda":
        return int(torch.cuda.mem_get_info()[0])
    return int(psutil.virtual_memory().available)


def _lanes_by_model(planned: PlannedStudy) -> Mapping[str, int | None]:
    """Return the lanes at once, by model: from the lock, or as registered."""
    protocol = planned.protocol
    path = planned.folder / lock.NAME if planned.folder else Path(lock.NAME)
    if planned.folder and path.is_file():
        try:
            lock_lanes = json.loads(path.read_text(encoding="utf-8"))["batch"]["lanes"]
            return {model: int(lock_lanes[model]) for model in protocol.models}
        except (ValueError, KeyError, TypeError):
            raise BadInput(f"{path}: is no lock that can be read; run: kv-prereg audit") from None
    return dict.fromkeys(protocol.models, protocol.generation.lanes_per_batch)
