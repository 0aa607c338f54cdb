"""A protocol on this machine: its models' files, the statistics that its arms need, what would run it."""

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from protocol import tasks
from protocol.evidence.lock import closure
from protocol.evidence.refusals import BadInput
from protocol.evidence.run.registration import PROTOCOL
from protocol.locked import drift
from protocol.models import paths, sources
from protocol.plan import reading
from protocol.plan.budget import Slot
from protocol.plan.design import TASK, Design
from protocol.plan.full_use import FullUse
from protocol.plan.slot_bytes import Widths, slot_of

__all__ = ["Planned", "read_protocol"]


def read_protocol(folder: Path) -> tuple[bytes, Design]:
    """protocol.toml as it was written, and what it says. Raises BadInput."""
    data = drift.written(folder)
    return data, reading.parse(data, str(folder / PROTOCOL))


class Planned(NamedTuple):
    protocol: Design
    home: Path  # where what was fetched is kept
    full_use: FullUse | None = None  # as it was measured, where a budget is a share of it
    folder: Path | None = None  # the registration's, where the files of its tasks lie
    widths: Mapping[str, Widths] | None = None  # by model, where slots are counted in bytes

    @property
    def tasks(self) -> Mapping[str, tasks.Task]:
        """What the protocol's tasks are here, by name. Raises BadInput for one that is not here."""
        return tasks.made(map(TASK.content, self.protocol.tasks), self.folder)

    def use(self, model: str, task: str) -> Fraction | None:
        """Mean slots of the full cache at the end of an answer; None where that was not measured."""
        return None if self.full_use is None else self.full_use[model, task]

    def slot(self, model: str, arm: str) -> Slot | None:
        """What a slot of an arm takes; None where no budget is in bytes and every slot is as computed."""
        if self.widths is None:
            return None
        return slot_of(self.protocol, arm, self.widths[model])

    def calibrated(self) -> list[str]:
        """The names of the statistics that some arm needs. Raises BadInput for what nothing calibrates."""
        needed = set()
        for arm in self.protocol.arms:
            for name, kind in ((each.name, each.kind) for each in self.protocol.policy(arm.name).calibrated):
                if paths.KINDS.get(name) != kind.__name__:
                    known = ", ".join(f"{name} ({of})" for name, of in paths.KINDS.items())
                    raise BadInput(
                        f"arms: {arm.name!r} reads {kind.__name__} that were calibrated as {name!r}, which "
                        f"nothing calibrates; choose a policy that reads one of: {known}"
                    )
                needed.add(name)
        return sorted(needed)

    def measured(self, model: str) -> dict[str, Path]:
        """The files of these statistics, by the name that the lock uses. Raises BadInput for one that is not
        there.
        """
        there = {}
        for name in self.calibrated():
            path = paths.statistics_paths(model, self.home)[name]
            if not path.is_file():
                raise BadInput(
                    f"model {model!r}: no statistics {name!r}, which an arm needs; "
                    f"run: kv-prereg calibrate {model} {name} --task <task>"
                )
            there[paths.locked_name(name)] = path
        return there

    def files(self) -> dict[str, dict[str, Path]]:
        """Every weight, configuration, tokenizer and template file, and the statistics that an arm needs, by
        model and name. Raises BadInput for a model that was not fetched and for statistics not measured.
        """
        return {
            model: sources.files(model, self.home) | self.measured(model) for model in self.protocol.models
        }

    def weights(self) -> dict[str, dict[str, str]]:
        """SHA-256 of all `files`."""
        return {model: closure.weights(each) for model, each in self.files().items()}

    def refuse_device(self) -> None:
        """Raises BadInput for a device that is not here."""
        import torch  # not before it is asked for: many refusals come earlier, and do without

        if self.protocol.generation.device == "cuda" and not torch.cuda.is_available():
            raise BadInput(
                'generation.device: torch finds no "cuda" here; use a machine that has it or register "cpu"'
            )

    def environment(self) -> dict[str, Any]:
        """Everything installed, and how torch was built and will be run. Raises as `refuse_device` does."""
        import torch

        self.refuse_device()
        generation = self.protocol.generation
        return closure.environment() | {
            "torch": {
                "build": closure.digest_of(torch.__config__.show().encode()),
                "cpu": torch.backends.cpu.get_cpu_capability(),
                "device": torch.cuda.get_device_name() if generation.device == "cuda" else generation.device,
                "threads": generation.threads,
                "version": str(torch.__version__),
            }
        }
