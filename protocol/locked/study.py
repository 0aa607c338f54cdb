"""A locked study, opened on this machine: its registration, and the protocol that the lock froze."""

from dataclasses import dataclass
from pathlib import Path

from protocol.evidence.lock import closure
from protocol.evidence.lock.lock import Lock
from protocol.evidence.refusals import Drifted
from protocol.evidence.run.registration import PROTOCOL, Registration
from protocol.locked import drift, imports, tree
from protocol.locked.planned import Planned
from protocol.plan import full_use, grid, reading, slot_bytes
from protocol.plan.design import Design

__all__ = ["Study", "open_study", "refuse_drift"]


@dataclass(frozen=True)
class Study:
    registration: Registration
    planned: Planned

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
        """The development ids by task, from the lock. The held-out ones come from `HeldOut` alone."""
        return {name: list(item["dev"]) for name, item in self.lock.content["items"].items()}

    def lanes(self) -> dict[str, int]:
        """Lanes that decode at once, by model; a lock from before this was chosen has none."""
        return dict(self.lock.content.get("batch", {}).get("lanes", {}))

    def first_event(self) -> int:
        """Decode steps before which no event fires; a lock from before this was chosen has none."""
        return int(self.lock.content.get("batch", {}).get("first_event", 0))

    def cells(self) -> list[grid.Cell]:
        return [grid.Cell(*cell) for cell in self.lock.content["grid"]]


def open_study(registration: Registration, home: Path) -> Study:
    """home: where what was fetched is kept. Raises BadInput without a lock, Drifted when protocol.toml is not
    the file that was locked.
    """
    path = registration.folder / PROTOCOL
    protocol = reading.parse(drift.refuse_edited(registration), str(path))
    if protocol.content() != registration.registered:
        raise Drifted(f"{path}: reads otherwise than the lock says; restore it or register another folder")
    held = registration.lock.content.get(full_use.FIELD)
    use = None if held is None else full_use.means(held)
    widths = slot_bytes.of_lock(registration.lock.content)
    return Study(registration, Planned(protocol, home, use, registration.folder, widths))


def refuse_drift(study: Study, *, with_weights: bool, runs_here: bool = True) -> None:
    """Compare today's bytes with the lock; raises Drifted that names the first differences and how
    many there are, and in the locked tree BadInput for a module that was imported from elsewhere.

    runs_here: whether what is compared will be run; if not, since the locked tree will be, a file may be new.
    """
    content = study.lock.content
    if tree.unpacked():
        imports.refuse_loaded()
    sources = drift.of_sources if runs_here else drift.of_locked
    differences = sources(content) + drift.of_data(content, study.folder)
    locked, now = content["environment"], study.planned.environment()
    differences += closure.differences({"environment": locked}, {"environment": now})
    if with_weights:
        differences += closure.differences(content["weights"], study.planned.weights())
    drift.refuse(study.registration, differences)
