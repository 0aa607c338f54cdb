"""A protocol on this machine: the files of its models, the statistics that its arms need, its environment."""

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from protocol import tasks
from protocol.evidence.registration import PROTOCOL
from protocol.formats import runners
from protocol.formats.refusals import BadInput
from protocol.lock import closure, installed_files
from protocol.models import calibration_paths, sources
from protocol.plan import toml_reader
from protocol.plan.budget import Slot
from protocol.plan.design import Design
from protocol.plan.full_use import FullUse
from protocol.plan.slot_bytes import Widths, slot_of
from protocol.workspace import drift


def read_protocol(folder: Path) -> tuple[bytes, Design]:
    """Return the bytes of protocol.toml and the parsed protocol. Raises BadInput."""
    data = drift.read_protocol_bytes(folder)
    return data, toml_reader.parse(data, str(folder / PROTOCOL))


def read_decoded_protocol(folder: Path) -> Design:
    """Return the protocol of a study that this project decodes. Raises BadInput, also for any other study."""
    _, protocol = read_protocol(folder)
    if not protocol.decodes:
        raise BadInput(runners.describe_refusal(folder))
    return protocol


class PlannedStudy(NamedTuple):
    protocol: Design
    home: Path  # the folder of fetched files
    full_use: FullUse | None = None  # as measured, if a budget is a share of it
    folder: Path | None = None  # the registration, which has the files of its tasks
    widths: Mapping[str, Widths] | None = None  # by model, if slots are counted in bytes

    @property
    def tasks(self) -> Mapping[str, tasks.Task]:
        """The tasks of the protocol by name. Raises BadInput for an unknown one."""
        return tasks.make_tasks(self.protocol.content()["tasks"], self.folder)

    def use(self, model: str, task: str) -> Fraction | None:
        """Return the mean slots of the full cache at the end of an answer; None if not measured."""
        return None if self.full_use is None else self.full_use[model, task]

    def slot(self, model: str, arm: str) -> Slot | None:
        """Return the size of a slot of an arm; None where slots need not be counted in bytes."""
        if self.widths is None:
            return None
        return slot_of(self.protocol, arm, self.widths[model])

    def required_statistics(self) -> list[str]:
        """Return the names of the statistics that arms need. Raises BadInput if nothing calibrates one."""
        needed = set()
        for arm in self.protocol.arms:
            for name, kind in ((need.name, need.kind) for need in self.protocol.policy(arm.name).calibrated):
                if calibration_paths.VALUE_CLASSES.get(name) != kind.__name__:
                    known = ", ".join(
                        f"{name} ({kind_name})" for name, kind_name in calibration_paths.VALUE_CLASSES.items()
                    )
                    raise BadInput(
                        f"arms: {arm.name!r} needs {kind.__name__} that were calibrated as {name!r}, which "
                        f"kv-prereg cannot calibrate; choose a policy that needs one of: {known}"
                    )
                needed.add(name)
        return sorted(needed)

    def statistics_files(self, model: str) -> dict[str, Path]:
        """Return the files of these statistics by the name that the lock uses. Raises BadInput if one is missing."""
        present = {}
        for name in self.required_statistics():
            path = calibration_paths.statistics_paths(model, self.home)[name]
            if not path.is_file():
                raise BadInput(
                    f"model {model!r}: has no statistics {name!r}, which an arm needs; run: kv-prereg "
                    f"calibrate {model} {name} --task <task>"
                )
            present[calibration_paths.locked_name(name)] = path
        return present

    def files(self) -> dict[str, dict[str, Path]]:
        """Return all weight, configuration, tokenizer and template files and required statistics, by model
        and name. Raises BadInput for a model that was not fetched or statistics that were not measured.
        """
        files = {}
        for index, model in enumerate(self.protocol.models):
            try:
                files[model] = sources.model_files(model, self.home) | self.statistics_files(model)
            except BadInput as refusal:
                raise BadInput(f"models[{index}]: {str(refusal).removeprefix('model ')}") from None
        return files

    def weights(self) -> dict[str, dict[str, str]]:
        """Return the SHA-256 of all `files`."""
        return {model: closure.weights(files) for model, files in self.files().items()}

    def refuse_device(self) -> None:
        """Raise BadInput if the registered device, or the native kernel, is not available."""
        import torch  # imported late: earlier refusals do not need it

        if self.protocol.generation.kernel == "native":
            from protocol.engine.native import library

            library.load()
        if self.protocol.generation.device == "cuda" and not torch.cuda.is_available():
            raise BadInput('generation.device: torch finds no "cuda" here; use a machine that has it or register "cpu"')

    def environment(self) -> dict[str, Any]:
        """Return installed packages, build and device of torch. Raises as `refuse_device` does."""
        import torch

        self.refuse_device()
        generation = self.protocol.generation
        return installed_files.environment() | {
            "torch": {
                "build": closure.sha256_hex(torch.__config__.show().encode()),
                "cpu": torch.backends.cpu.get_cpu_capability(),
                "device": torch.cuda.get_device_name() if generation.device == "cuda" else generation.device,
                "threads": generation.threads,
                "version": str(torch.__version__),
            }
        }
