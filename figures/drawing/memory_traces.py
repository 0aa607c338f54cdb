"""The cache sizes of a study's lanes while they decoded, from the side files of its records."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from analysis.judgement import untrusted_files
from analysis.judgement.untrusted_files import RecordError

BAND = 10, 90  # percentiles


class MomentStatistics(NamedTuple):
    """Slots in use over some lanes, axes [moment]; a lane is included at a moment while it is decoding."""

    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    """The percentiles BAND, linear between lanes."""
    lanes: NDArray[np.int64]


class Trace(NamedTuple):
    """The lanes of one arm of a cell, all problems and seeds. Slots are per KV head and layer."""

    model: str
    task: str
    budget: str
    arm: str
    nominal: float
    """The registered budget in slots, mean over lanes; NaN for an arm that never evicts."""
    slots: MomentStatistics
    """Moment 0 is the end of the prefill after its eviction; one more after every decode step."""
    over: MomentStatistics | None
    "The same, minus the budget of each lane; None for an arm that never evicts."
    overall: float
    "Mean over the moments of a lane, then over lanes; memory is matched by this value."
    state: int
    "The maximum bytes of policy memory in addition to the slots, in any lane."
    token: float
    """Bytes of the keys and values of one token; see `read_traces`."""
    events: bool
    """Whether any lane was compressed while decoding."""


def read_traces(folder: Path, lock: Mapping[str, Any]) -> list[Trace]:
    """Return the arms of a study whose confirm records cite side files, in registered order; empty without side files.

    The bytes of a token are not recorded. They are derived from the lane of the model that filled its allocation best,
    bytes allocated over the most slots in use: exact if it was full, otherwise slightly too large. Raises RecordError
    for a side file that is missing or damaged while others are not.
    """
    records = Path(folder) / "records"
    if not any((records / "trajectories").glob("*.json.gz")):
        return []
    lanes: dict[tuple[str, str, str, str], list[_Lane]] = {}
    for model, task, budget, arm, _ in lock["grid"]:
        lanes[model, task, budget, arm] = []
    token: dict[str, float] = {}
    for body in untrusted_files.read_bodies(records):
        if body["phase"] != "confirm" or not body["trajectory"]:
            continue
        model, task, budget, arm = (body["cell"][name] for name in ("model", "task", "budget", "arm"))
        events = any(step > 0 for step, *_ in body["cache"]["events"])
        lane = _Lane(body["trajectory"], body["slots"], body["cache"]["state_bytes"], events)
        lanes[model, task, budget, arm].append(lane)
        used = body["cache"]["peak_bytes"] / float(body["cache"]["peak"])
        token[model] = min(used, token.get(model, used))
    side_files = _SideFiles(records / "trajectories")
    return [_build_trace(cell, lane, token[cell[0]], side_files) for cell, lane in lanes.items() if lane]


class _Lane(NamedTuple):
    """The fields of a record that a trace uses."""

    trajectory: str
    slots: int | None
    state: int
    events: bool  # whether any occurred while decoding


def _build_trace(
    cell: tuple[str, str, str, str], lanes: Sequence[_Lane], token: float, side_files: "_SideFiles"
) -> Trace:
    slot_counts = [side_files.slot_counts(lane.trajectory) for lane in lanes]
    budgets = [lane.slots for lane in lanes if lane.slots is not None]
    evicts = len(budgets) == len(lanes)
    return Trace(
        *cell,
        nominal=float(np.mean(budgets)) if evicts else np.nan,
        slots=summarise(slot_counts),
        over=summarise([lane_slots - slots for lane_slots, slots in zip(slot_counts, budgets, strict=True)])
        if evicts
        else None,
        overall=float(np.mean([lane_slots.mean() for lane_slots in slot_counts])),
        state=max(lane.state for lane in lanes),
        token=token,
        events=any(lane.events for lane in lanes),
    )


def summarise(slot_counts: Sequence[NDArray[np.float64]]) -> MomentStatistics:
    """Summarise slot_counts: [moment] of each lane, of any length."""
    table = np.full((len(slot_counts), max(map(len, slot_counts))), np.inf)
    for row, lane_slots in zip(table, slot_counts, strict=True):
        row[: len(lane_slots)] = lane_slots
    table.sort(axis=0)  # lanes that have ended are last
    is_decoding = np.isfinite(table)
    lanes = is_decoding.sum(axis=0)
    low, high = (_quantile(table, lanes, percent / 100) for percent in BAND)
    return MomentStatistics(np.where(is_decoding, table, 0).sum(axis=0) / lanes, low, high, lanes)


def _quantile(table: NDArray[np.float64], lanes: NDArray[np.int64], share: float) -> NDArray[np.float64]:
    """Return a quantile of the first `lanes` rows of each column, which are sorted."""
    position = share * (lanes - 1)
    under = np.floor(position).astype(int)
    over = np.minimum(under + 1, lanes - 1)
    columns = np.arange(table.shape[1])
    below: NDArray[np.float64] = table[under, columns]
    quantile: NDArray[np.float64] = below + (position - under) * (table[over, columns] - below)
    return quantile


class _SideFiles:
    """The side files of a study, each read once, with slots stored compactly."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: dict[str, list[tuple[NDArray[np.unsignedinteger[Any]], int]]] = {}

    def slot_counts(self, cited: str) -> NDArray[np.float64]:
        """Return [moment] slots per KV head and layer. cited: a file and an index in it, or a file alone."""
        name, mark, index = cited.partition("#")
        path = self.folder / f"{name}.json.gz"
        try:
            if name not in self.files:
                side = json.loads(untrusted_files.read_gzip(path))
                self.files[name] = [_pack(entry) for entry in (side if isinstance(side, list) else [side])]
            slots, heads = self.files[name][int(index) if mark else 0]
            mean_counts: NDArray[np.float64] = slots.astype(np.float64) / heads
        except FileNotFoundError:
            raise RecordError(f"{path.name}: is missing among the trajectories; restore the whole folder") from None
        except RecordError:
            raise
        except (OSError, ValueError, KeyError, IndexError, TypeError, RecursionError):
            raise RecordError(f"{path.name}: is damaged; restore the whole folder of trajectories") from None
        return mean_counts


def _pack(side: Mapping[str, Any]) -> tuple[NDArray[np.unsignedinteger[Any]], int]:
    """Return slots at each moment, over all heads, and the number of heads."""
    slots = np.array(side["held"], dtype=np.uint64)
    return slots.astype(np.min_scalar_type(slots.max())), side["heads"]
