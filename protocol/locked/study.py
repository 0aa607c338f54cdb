"""One registration on disk, opened: its folder, its lock and the protocol that the lock froze."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from protocol.evidence.audit.standing import PROTOCOL
from protocol.evidence.lock import closure, lock
from protocol.evidence.lock.lock import Lock
from protocol.evidence.refusals import BadInput, Drifted
from protocol.locked import drift
from protocol.locked.drift import ROOT
from protocol.models import paths, sources
from protocol.plan import grid, reading
from protocol.plan.design import Design

__all__ = [
    "ROOT",
    "Study",
    "calibrated",
    "environment",
    "measured",
    "open_study",
    "read_protocol",
    "refuse_drift",
    "weights",
]


class Study(NamedTuple):
    folder: Path
    lock: Lock
    protocol: Design

    def development(self) -> dict[str, list[str]]:
        """The development ids by task, from the lock. The held-out ones come from evidence.sealed alone."""
        return {name: list(item["dev"]) for name, item in self.lock.content["items"].items()}

    def lanes(self) -> dict[str, int]:
        """Lanes that decode at once, by model; a lock from before this was chosen has none."""
        return dict(self.lock.content.get("batch", {}).get("lanes", {}))

    def cells(self) -> list[grid.Cell]:
        return [grid.Cell(*cell) for cell in self.lock.content["grid"]]


def read_protocol(folder: Path) -> tuple[bytes, Design]:
    path = folder / PROTOCOL
    if not path.is_file():
        raise BadInput(f"{folder}: no {PROTOCOL} here; name a folder such as registrations/quickstart")
    data = path.read_bytes()
    return data, reading.parse(data, str(path))


def open_study(folder: Path) -> Study:
    """Raises BadInput without a lock, Drifted when protocol.toml is not the file that was locked."""
    data, protocol = read_protocol(folder)
    held = lock.read(folder)
    locked = held.content["protocol"]
    if closure.digest_of(data) != locked["sha256"] or protocol.content() != locked["content"]:
        raise Drifted(
            f"{folder / PROTOCOL}: differs from the locked file; restore it or register another folder"
        )
    return Study(folder, held, protocol)


def weights(protocol: Design, home: Path) -> dict[str, dict[str, str]]:
    """SHA-256 of every weight, configuration, tokenizer and template file, and of the statistics that an arm
    needs, by model. Raises BadInput for statistics that were not measured.
    """
    needed = calibrated(protocol)
    return {
        source: closure.weights(sources.files(source, home) | measured(source, home, needed))
        for source in protocol.models
    }


def calibrated(protocol: Design) -> list[str]:
    """The names of the statistics that some arm needs."""
    return sorted({one.name for arm in protocol.arms for one in protocol.policy(arm.name).calibrated})


def measured(source: str, home: Path, needed: Iterable[str]) -> dict[str, Path]:
    """The files of these statistics, by the name that the lock uses. Raises BadInput for one that is not
    there.
    """
    found = {}
    for name in needed:
        path = paths.statistics_paths(source, home)[name]
        if not path.is_file():
            raise BadInput(
                f"model {source!r}: no statistics {name!r}, which an arm needs; "
                f"run: python -m protocol.calibrate {source} {name} --task <task>"
            )
        found[paths.locked_name(name)] = path
    return found


def environment(protocol: Design) -> dict[str, Any]:
    """Everything installed, and how torch was built and will be run. Raises BadInput for a device that is not
    here.
    """
    generation = protocol.generation
    if generation.device == "cuda" and not torch.cuda.is_available():
        raise BadInput(
            'generation.device: torch finds no "cuda" here; use a machine that has it or register "cpu"'
        )
    return closure.environment() | {
        "torch": {
            "build": closure.digest_of(torch.__config__.show().encode()),
            "cpu": torch.backends.cpu.get_cpu_capability(),
            "device": torch.cuda.get_device_name() if generation.device == "cuda" else generation.device,
            "threads": generation.threads,
            "version": str(torch.__version__),
        }
    }


def refuse_drift(study: Study, home: Path, *, with_weights: bool) -> None:
    """Compare today's bytes with the lock; raises Drifted that names the first differences and how
    many there are.
    """
    content = study.lock.content
    found = drift.of_files(content) + drift.of_environment(
        content["environment"], environment(study.protocol)
    )
    if with_weights:
        found += closure.differences(content["weights"], weights(study.protocol, home))
    drift.refuse(study.folder, study.lock, found)
