"""The memory of two arms: whether it matches, the charge, and the ratios in every measure."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from analysis.judgement import contrasts
from analysis.judgement.contrasts import Lanes, Pairing, lane_memory, problem_clusters, problem_table
from analysis.judgement.judging_rules import is_judged_as_shipped
from analysis.rules.rule import measures_memory
from analysis.stats import memory_charge, memory_matching, resampled_units
from analysis.stats.memory_charge import Charge, CurvePoint, Neighbour, SwingCharge
from protocol.formats.json_text import format_decimal
from protocol.formats.vocabulary import FULL, ISO_CACHE

Arms = Mapping[tuple[str, ...], Lanes]  # from `Study.by_arm` or `columns_by_arm`
# Measures of memory, each with its column; they may differ even if the registered memory matches.
MEASURES: Mapping[str, str] = MappingProxyType(
    {
        "slots": "mean_slots",
        "peak slots": "peak_slots",
        "bytes": "evictable_bytes",
        "granted": "granted",
        "reads": "reads",
    }
)


class ContrastMemory(NamedTuple):
    """The memory of a contrast. charge: None for arms that do not match, and against the full cache. neighbour: the
    subject against its comparator at the nearest neighbour with as much memory, against which it is tested too; None
    where a charge is tested instead.
    """

    match: memory_matching.MemoryMatch
    charge: Charge | SwingCharge | None
    neighbour: "NeighbourPairing | None" = None

    @property
    def points(self) -> float:
        """The charge in accuracy points; below 0 if the subject uses less memory."""
        return 0.0 if self.charge is None or not self.match.is_matched else self.charge.points

    @property
    def null(self) -> float:
        """What a test of the difference at the budget leaves to memory: nothing if the neighbour is tested too."""
        return 0.0 if self.neighbour is not None else self.points


class NeighbourPairing(NamedTuple):
    budget: str
    pairing: Pairing


def contrast_memory(
    pairing: Pairing, arms: Arms, lock: Mapping[str, Any], level: float, *, has_neighbours: bool = False
) -> ContrastMemory:
    """Match the memory of a contrast and charge it. level: two-sided, of the contrast. has_neighbours: the caller tests
    the neighbour, if one is found, in place of the charge.
    """
    decision, problems = lock["protocol"]["content"]["decision"], lock["items"][pairing.task]["confirm"]
    if not measures_memory(decision):  # then no memory keeps a contrast from being won, and nothing is said of it
        return ContrastMemory(memory_matching.MemoryMatch(np.nan, np.nan, np.nan, True), None)
    memory, tolerance = pairing.measured_memory(), float(decision["cache_tolerance"])
    if pairing.full:  # unequal on purpose, so nothing is charged
        return ContrastMemory(memory_matching.match_savings(*memory, tolerance=tolerance), None)
    if is_judged_as_shipped(lock):
        match = memory_matching.match_memory(*memory, tolerance=tolerance)
        return ContrastMemory(match, charge_contrast(pairing, arms, lock, problems) if match.is_matched else None)
    match = memory_matching.match_means(*memory, tolerance=tolerance)
    neighbour = find_neighbour(pairing, arms, lock, match.ratio - 1) if has_neighbours else None
    charge = (
        bound_contrast(pairing, arms, lock, problems, level)
        if neighbour is None
        else memory_charge.measure_charge(match.ratio - 1, pairing.difference, neighbour.pairing.difference)
    )
    is_allowed = match.is_matched or decision.get("unmatched") == ISO_CACHE
    return ContrastMemory(match._replace(is_matched=is_allowed and charge.swing is not None), charge, neighbour)


def find_neighbour(pairing: Pairing, arms: Arms, lock: Mapping[str, Any], excess: float) -> NeighbourPairing | None:
    """Return the comparator at its nearest registered neighbour or budget that holds, on the same problems, at least as
    much as a subject with an excess, or at most as much as one with a shortfall; None without one, or neighbours. One
    that is further away than 5 % of the subject's memory, or a slot, says too little of its comparator there.
    """
    cell, side = (*_cell(pairing), pairing.subject), np.sign(excess)
    content, reached = lock["protocol"]["content"], []
    neighbours = content.get("neighbours", ())
    # A budget that is nearer counts as well: a neighbour beyond it may be one where the comparator is worse again.
    for budget in (*neighbours, *content["budgets"]) if neighbours else ():
        if abs(excess) > memory_charge.NOISE and (*cell[:2], budget, pairing.against) in arms:
            paired = contrasts.pair_cells(arms, lock, cell, (budget, pairing.against))
            measured = paired.measured_memory()
            if paired.problems != pairing.problems or len(measured[0]) < 2:
                continue
            subject, comparator = (values.mean() for values in measured)
            slots = np.nanmean(arms[*cell[:2], budget, pairing.against]["mean_slots"])
            is_near = abs(comparator - subject) <= max(memory_charge.NEAR * subject, comparator / slots)
            if side * comparator >= side * subject and is_near:
                reached.append((abs(comparator - subject), NeighbourPairing(budget, paired)))
    return min(reached, key=lambda item: item[0])[1] if reached else None


def bound_contrast(
    pairing: Pairing, arms: Arms, lock: Mapping[str, Any], problems: list[str], level: float
) -> SwingCharge:
    """Charge a contrast by the measurements of its comparator on both sides: its other budgets, the full cache,
    and an empty cache, which is right nowhere. Their limits are Student's, one-sided at level / 2.
    """
    subject_memory, comparator_memory = (float(values.mean()) for values in pairing.measured_memory())
    base = _accuracy_and_memory(arms, lock, (*_cell(pairing), pairing.against), problems)
    empty = np.zeros_like(base)
    others = [empty, *(_accuracy_and_memory(arms, lock, key, problems) for key in _curve_cells(pairing, arms))]
    neighbours = []
    for other in others:
        is_measured = np.isfinite(np.stack([base, other])).all(axis=(0, 1))
        clusters = problem_clusters(lock, pairing.task, [problems[index] for index in np.flatnonzero(is_measured)])
        if resampled_units.count_units(clusters, int(is_measured.sum())) < 2:
            continue
        change, memory = (other - base)[0, is_measured], other[1, is_measured].mean() / base[1, is_measured].mean()
        (limits,) = resampled_units.compare_at_levels(
            "t", change[:, None], clusters, [1 - level], draws=0, rng=np.random.default_rng
        )
        neighbours.append(Neighbour(comparator_memory * float(memory), limits.low, limits.high))
    return memory_charge.bound_charge(subject_memory, comparator_memory, neighbours)


def charge_contrast(pairing: Pairing, arms: Arms, lock: Mapping[str, Any], problems: list[str]) -> Charge:
    """Charge a contrast as studies that ship are charged, by the comparator's curve in this study."""
    is_measured = ~np.isnan([pairing.subject_memory, pairing.comparator_memory]).any(axis=(0, 2))
    comparator_point = CurvePoint(
        float(pairing.comparator_memory[is_measured].mean()), float(pairing.comparator_correct[is_measured].mean())
    )
    base = _accuracy_and_memory(arms, lock, (*_cell(pairing), pairing.against), problems)
    answers = [_accuracy_and_memory(arms, lock, key, problems) for key in _curve_cells(pairing, arms)]
    points = [point for table in answers if (point := _curve_point(comparator_point, base, table)) is not None]
    return memory_charge.charge_memory(float(pairing.subject_memory[is_measured].mean()), comparator_point, points)


def _cell(pairing: Pairing) -> tuple[str, str, str]:
    return pairing.model, pairing.task, pairing.budget


def _curve_cells(pairing: Pairing, arms: Arms) -> list[tuple[str, ...]]:
    """Return the cells of the comparator's other budgets, and those of arms with budget "full", which equal any
    policy without eviction.
    """
    return [
        key
        for key in arms
        if key[:2] == (pairing.model, pairing.task)
        and key[2] != pairing.budget
        and (key[3] == pairing.against or key[2] == FULL)
    ]


def _accuracy_and_memory(
    arms: Arms, lock: Mapping[str, Any], key: tuple[str, ...], problems: list[str]
) -> NDArray[np.float64]:
    """Return accuracy and memory of a cell, [2, problem], NaN for a problem with an unmeasured lane."""
    lanes = arms[key]
    lane_values = np.stack(
        [problem_table(lanes, "correct", problems), lane_memory(lanes, lock, key[0], key[3], problems)]
    )
    problem_values: NDArray[np.float64] = lane_values.mean(axis=2)
    return problem_values


def _curve_point(
    comparator_point: CurvePoint, base: NDArray[np.float64], table: NDArray[np.float64]
) -> CurvePoint | None:
    """Return another curve point relative to `comparator_point`, on the problems measured in both."""
    is_measured = ~np.isnan([base, table]).any(axis=(0, 1))
    if is_measured.sum() < 2:
        return None
    base_accuracy, base_memory = base[:, is_measured].mean(axis=1)
    accuracy, memory = table[:, is_measured].mean(axis=1)
    return CurvePoint(
        comparator_point.memory * float(memory / base_memory),
        comparator_point.accuracy + float(accuracy - base_accuracy),
    )


def slot_bytes(lock: Mapping[str, Any], pairing: Pairing) -> tuple[int, int] | None:
    """Return bytes per slot of subject and comparator, if the lock has both and neither stores slots apart."""
    arms = lock.get("slot_bytes", {}).get(pairing.model, {}).get("arms", {})
    pair = {pairing.subject, pairing.against}
    if not pair <= arms.keys() or any("recent" in arms[name] for name in pair):
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
    charge, points = match.charge, None if match.charge is None else match.charge.points
    explained: dict[str, str | None] = {"slope": None, "nearest": None}
    if isinstance(charge, SwingCharge):
        explained = {"swing": None if charge.swing is None else format_decimal(charge.swing)}
        if match.neighbour is not None:
            explained["neighbour"] = match.neighbour.budget
    elif charge is not None:
        explained["slope"] = None if charge.slope is None else f"{charge.slope:.3e}"
        explained["nearest"] = None if charge.nearest is None else format_decimal(charge.nearest)
    return {
        "by": registered_measure,
        "excess": format_decimal(match.match.ratio - 1),
        "apart": format_decimal(match.match.distance),
        **explained,
        "charge": None if points is None or not np.isfinite(points) else format_decimal(points),
        "decided": decided,
        "ratios": {measure: format_decimal(ratio) for measure, ratio in ratios.items()},
    }
