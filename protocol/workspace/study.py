"""A locked study, opened on this machine: its registration and the protocol that the lock froze."""

from dataclasses import dataclass
from pathlib import Path

from protocol.evidence.registration import PROTOCOL, Registration
from protocol.formats import runners
from protocol.formats.refusals import BadInput, Drifted
from protocol.lock import closure
from protocol.lock.lock import Lock
from protocol.plan import full_use, grid, slot_bytes, toml_reader
from protocol.plan.design import Design
from protocol.workspace import drift, imports, locked_tree, run_inputs
from protocol.workspace.planned_study import PlannedStudy


@dataclass(frozen=True)
class Study:
    registration: Registration
    planned: PlannedStudy

    @property
    def folder(self) -> Path:
        return self.registration.folder

    @property
    def lock(self) -> Lock:
        return self.registration.lock

    @property
    def protocol(self) -> Design:
        return self.planned.protocol

    def development(self) -> dict[str, list[str]]:
        """Return the development ids by task, from the lock. Only `HeldOut` gives the held-out ones."""
        return {name: list(item["dev"]) for name, item in self.lock.content["items"].items()}

    def lanes(self) -> dict[str, int]:
        """Return how many lanes decode at once, by model."""
        return dict(self.lock.content["batch"]["lanes"])

    def first_event(self) -> int:
        """Return the number of decode steps before the first eviction."""
        return int(self.lock.content["batch"]["first_event"])

    def cells(self) -> list[grid.Cell]:
        return [grid.Cell(*cell) for cell in self.lock.content["grid"]]


def open_study(registration: Registration, home: Path) -> Study:
    """Open a locked study. home: the folder of fetched files. Raises BadInput without a lock, Drifted if
    protocol.toml is not the file that was locked.
    """
    path = registration.folder / PROTOCOL
    protocol = toml_reader.parse(drift.refuse_edited(registration), str(path))
    if not protocol.decodes:
        raise BadInput(runners.describe_refusal(registration.folder))
    if protocol.content() != registration.protocol:
        raise Drifted(f"{path}: has values that differ from those in the lock; restore it or register another folder")
    entry = registration.lock.content[full_use.FIELD]
    use = full_use.read_means(entry) if entry else None
    widths = slot_bytes.read_widths(registration.lock.content)
    return Study(registration, PlannedStudy(protocol, home, use, registration.folder, widths))


def refuse_drift(study: Study, *, with_weights: bool, runs_here: bool = True) -> None:
    """Compare the current bytes with the lock. Raises Drifted with the first differences and their number; in
    the locked tree also BadInput for a module that was imported from elsewhere.

    runs_here: whether the compared sources will run; if not, since the locked tree will, files may be new.
    """
    content = study.lock.content
    if locked_tree.is_unpacked():
        imports.refuse_loaded()
    compare = drift.compare_sources if runs_here else drift.compare_locked_sources
    differences = compare(content) + run_inputs.compare_data(content, study.folder)
    locked, current = content["environment"], study.planned.environment()
    differences += closure.differences({"environment": locked}, {"environment": current})
    if with_weights:
        differences += closure.differences(content["weights"], study.planned.weights())
    run_inputs.refuse(study.registration, differences)
