"""The memory of two arms: whether it matches, the charge, and the ratios in every measure."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from analysis.judgement.contrasts import Lanes, Pairing, lane_memory, problem_table
from analysis.stats import memory_charge, memory_matching
from analysis.stats.memory_charge import Charge, CurvePoint
from protocol.formats.json_text import format_decimal
from protocol.formats.vocabulary import FULL

__all__ = ["Arms", "ContrastMemory", "charge_contrast", "contrast_memory", "memory_ratios", "memory_row", "slot_bytes"]

Arms = Mapping[tuple[str, ...], Lanes]  # from `Study.by_arm` or `columns_by_arm`
# Measures of memory, each with its column; they may differ even if the registered memory matches.
MEASURES: Mapping[str, str] = MappingProxyType(
    {
        "slots": "mean_slots",
        "peak slots": "peak_slots",
        "bytes": "evictable_bytes",
        "granted": "granted",
    }
)


class ContrastMemory(NamedTuple):
    """The memory of a contrast. charge: None for arms that do not match, and against the full cache."""

    match: memory_matching.MemoryMatch
    charge: Charge | None

    @property
    def points(self) -> float:
        """The charge in accuracy points; below 0 if the subject uses less memory."""
        return 0.0 if self.charge is None else self.charge.points


def contrast_memory(pairing: Pairing, arms: Arms, decision: Mapping[str, Any], problems: list[str]) -> ContrastMemory:
    """Match the memory of a contrast and charge it. problems: of the task, in order."""
    subject_memory, comparator_memory = pairing.measured_memory()
    if pairing.full:  # unequal on purpose, so nothing is charged
        return ContrastMemory(
            memory_matching.match_savings(
                subject_memory, comparator_memory, tolerance=float(decision["cache_tolerance"])
            ),
            None,
        )
    match = memory_matching.match_memory(
        subject_memory, comparator_memory, tolerance=float(decision["cache_tolerance"])
    )
    return ContrastMemory(match, charge_contrast(pairing, arms, decision, problems) if match.is_matched else None)


def charge_contrast(pairing: Pairing, arms: Arms, decision: Mapping[str, Any], problems: list[str]) -> Charge:
    """Charge a contrast by the comparator's curve in this study: its other budgets, and arms with budget
    "full", which equal any policy without eviction.
    """
    counts = decision.get("memory", "slots")
    is_measured = ~np.isnan([pairing.subject_memory, pairing.comparator_memory]).any(axis=(0, 2))
    comparator_point = CurvePoint(
        float(pairing.comparator_memory[is_measured].mean()), float(pairing.comparator_correct[is_measured].mean())
    )
    base = _accuracy_and_memory(arms[pairing.model, pairing.task, pairing.budget, pairing.against], counts, problems)
    other_lanes = [
        arm
        for (model, task, budget, name), arm in arms.items()
        if (model, task) == (pairing.model, pairing.task)
        and budget != pairing.budget
        and (name == pairing.against or budget == FULL)
    ]
    answers = [_accuracy_and_memory(arm, counts, problems) for arm in other_lanes]
    points = [point for table in answers if (point := _curve_point(comparator_point, base, table)) is not None]
    return memory_charge.charge_memory(float(pairing.subject_memory[is_measured].mean()), comparator_point, points)


def _accuracy_and_memory(arm: Lanes, memory: str, problems: list[str]) -> NDArray[np.float64]:
    """Return accuracy and memory, [2, problem], NaN for a problem with an unmeasured lane."""
    lane_values = np.stack([problem_table(arm, "correct", problems), lane_memory(arm, memory, problems)])
    problem_values: NDArray[np.float64] = lane_values.mean(axis=2)
    return problem_values


def _curve_point(
    comparator_point: CurvePoint, base: NDArray[np.float64], table: NDArray[np.float64]
) -> CurvePoint | None:
    """Return another curve point relative to `comparator_point`, on the problems measured in both."""
    is_measured = ~np.isnan([base, table]).any(axis=(0, 1))
    if is_measured.sum() < 2:
        return None
    (base_accuracy, base_memory), (accuracy, memory) = (
        base[:, is_measured].mean(axis=1),
        table[:, is_measured].mean(axis=1),
    )
    return CurvePoint(
        comparator_point.memory * float(memory / base_memory),
        comparator_point.accuracy + float(accuracy - base_accuracy),
    )


def slot_bytes(lock: Mapping[str, Any], pairing: Pairing) -> tuple[int, int] | None:
    """Return bytes per slot of subject and comparator, if the lock has both."""
    arms = lock.get("slot_bytes", {}).get(pairing.model, {}).get("arms", {})
    if not {pairing.subject, pairing.against} <= arms.keys():
        return None
    return arms[pairing.subject]["bytes"], arms[pairing.against]["bytes"]


def memory_ratios(
    pairing: Pairing, arms: Arms, problems: list[str], sizes: tuple[int, int] | None = None
) -> dict[str, float]:
    """Return the ratios of the subject's memory to the comparator's, in every measure that both arms have.

    "state": 1 plus the excess of the subject policy's state over the bytes of the comparator's cache. sizes:
    from `slot_bytes`; with them the bytes of the slots in use, "held bytes", are included.
    """
    model_and_task = pairing.model, pairing.task
    subject_lanes = arms[*model_and_task, pairing.budget, pairing.subject]
    comparator_lanes = arms[*model_and_task, FULL if pairing.full else pairing.budget, pairing.against]

    def means(column: str) -> tuple[float, float]:
        tables = [problem_table(arm, column, problems) for arm in (subject_lanes, comparator_lanes)]
        is_measured = ~np.isnan(tables).any(axis=(0, 2))
        first, second = (float(table[is_measured].mean()) if is_measured.any() else np.nan for table in tables)
        return first, second

    measured = {measure: means(column) for measure, column in MEASURES.items()}
    ratio_by_measure = {measure: first / second for measure, (first, second) in measured.items() if second > 0}
    if sizes is not None and "slots" in ratio_by_measure:
        ratio_by_measure["held bytes"] = ratio_by_measure["slots"] * sizes[0] / sizes[1]
    (state, carried), (_, cache) = means("state_bytes"), measured["bytes"]
    if cache > 0:
        ratio_by_measure["state"] = 1 + (state - carried) / cache
    return ratio_by_measure


def memory_row(
    match: ContrastMemory, decided: bool, ratios: Mapping[str, float], registered_measure: str
) -> dict[str, Any]:
    """Return the memory part of a judgement row. decided: whether the charge changed the result."""
    charge = match.charge
    slope, nearest, points = (None, None, None) if charge is None else charge[1:]
    return {
        "by": registered_measure,
        "excess": format_decimal(match.match.ratio - 1),
        "apart": format_decimal(match.match.distance),
        "slope": None if slope is None else f"{slope:.3e}",
        "nearest": None if nearest is None else format_decimal(nearest),
        "charge": None if points is None or not np.isfinite(points) else format_decimal(points),
        "decided": decided,
        "ratios": {measure: format_decimal(ratio) for measure, ratio in ratios.items()},
    }
