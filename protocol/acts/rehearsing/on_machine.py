"""Estimate how long a study takes on a machine that may not be available: from constants, without running it.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil
import torch

from analysis.output.phases import phase
from protocol.acts.locking import frozen
from protocol.evidence.lock import lock
from protocol.evidence.refusals import BadInput
from protocol.locked.planned import Planned
from protocol.planning import estimate, machines, measured, workload
from protocol.planning.arithmetic import Arm, Rates
from protocol.planning.estimate import Estimate
from protocol.planning.workload import Given, Load

__all__ = ["estimated"]

WIDER = 1.3  # uncertainty of a measurement here, in both directions


def estimated(planned: Planned, on: str, given: Given, price: float | None) -> Estimate:
    """Raise BadInput for an unknown machine, an unknown shape of a model, and missing problems."""
    protocol, generation = planned.protocol, planned.protocol.generation
    machine = None if on.strip() == machines.HERE else machines.machine(on)
    items = _items(planned)
    with phase("counting lanes, slots and tokens"):
        loads = workload.loads(planned, items, given)
    sides: dict[str, tuple[Rates, Rates, Rates]] = {}
    if machine is None:
        assumed: list[str] = []
        device = generation.device
        if device == "cuda" and not torch.cuda.is_available():
            raise BadInput('--on here: torch finds no "cuda" here, which is registered; name a machine')
        torch.set_num_threads(min(generation.threads, os.cpu_count() or 1))
        for model in protocol.models:
            with phase(f"measuring this machine at the shape of {model}") as tell:
                rates, without = measured.measured(_asked(model, loads, planned), device, tell=tell)
            sides[model] = _around(rates)
            assumed += [
                f"{arm}: as another arm, since it was not measured: {why}" for arm, why in without.items()
            ]
        assumed.append(f"weights read and digested at {rates.load / 1e9:g} GB a second")
        cores = max(1, (os.cpu_count() or 1) // generation.threads)
        beside = 1 if device == "cuda" else max(1, min(generation.workers or 1, cores))
        name, memory = "this machine", float(_free(device))
    else:
        sides = {model: machines.rates(machine, generation.dtype) for model in protocol.models}
        assumed = _assumed(machine)
        beside, memory = machine.devices, machine.memory
        name = f"{machine.devices} x {machine.name}"
    share = memory * estimate.USABLE / (1 if machine else beside)
    return estimate.estimated(
        loads,
        sides,
        generation,
        machine=name,
        beside=beside,
        memory=share,
        lanes=_lanes(planned),
        price=price,
        assumed=assumed,
    )


def _items(planned: Planned) -> dict[str, dict[str, list[str]]]:
    """Return the problems of the tasks that are available."""
    try:
        return frozen.items(planned)
    except BadInput as refusal:
        counted = all(task.dev and task.confirm for task in planned.protocol.tasks)
        if counted:
            return {}  # the protocol has the counts, the options the prompt lengths
        raise refusal


def _asked(model: str, loads: Sequence[Load], planned: Planned) -> measured.Asked:
    own = [load for load in loads if load.model == model]
    most = max(own, key=lambda load: load.longest)
    arms = {name: arm for load in own for name, arm in load.arms.items()}
    lanes = _lanes(planned)[model] or len(most.kinds) * most.together
    generation = planned.protocol.generation
    return measured.Asked(most.shape, generation.dtype, most.prompt, lanes, generation.interval, arms)


def _around(rates: Rates) -> tuple[Rates, Rates, Rates]:
    """Return the measured rates between a slower and a faster variant."""

    def times(factor: float) -> Rates:
        host = rates.host

        def pair(two: tuple[float, float]) -> tuple[float, float]:
            return two[0] / factor, two[1] / factor

        def arm(one: Arm) -> Arm:
            return Arm(*map(pair, one))

        return rates._replace(
            **{
                name: getattr(rates, name) * factor
                for name in ("linear", "attention", "watched", "rows", "weights", "cache", "load")
            },
            host=host._replace(
                forward=host.forward / factor,
                layer=host.layer / factor,
                pool=host.pool / factor,
                lane=pair(host.lane),
                join=pair(host.join),
                logit=host.logit / factor,
                noise=host.noise / factor,
                arm=arm(host.arm),
            ),
            arms={name: arm(one) for name, one in rates.arms.items()},
        )

    return times(1 / WIDER), rates, times(WIDER)


def _assumed(machine: machines.Machine) -> list[str]:
    """Return the constants of a machine that nobody has measured."""
    assumed = machines.known()["assumed"]
    parts = [part for part in ("share", "host", "load") if not any(o.startswith(part) for o in machine.own)]
    if not parts:
        return []
    words = {"share": "shares of the peaks that are reached", "host": "the host's seconds", "load": "loading"}
    return [f"{', '.join(words[part] for part in parts)}: assumed on {assumed['date']}, docs/planning.md"]


def _free(device: str) -> int:
    if device == "cuda":
        return int(torch.cuda.mem_get_info()[0])
    return int(psutil.virtual_memory().available)


def _lanes(planned: Planned) -> Mapping[str, int | None]:
    """Return the lanes at once, by model: from the lock, or as registered."""
    protocol = planned.protocol
    path = planned.folder / lock.NAME if planned.folder else Path(lock.NAME)
    if planned.folder and path.is_file():
        try:
            locked = json.loads(path.read_text(encoding="utf-8"))["batch"]["lanes"]
            return {model: int(locked[model]) for model in protocol.models}
        except (ValueError, KeyError, TypeError):
            raise BadInput(f"{path}: is no lock that can be read; run: kv-prereg audit") from None
    return dict.fromkeys(protocol.models, protocol.generation.lanes_per_batch)
