"""The memory of two arms: whether it matches, the charge, and the ratios in every measure."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from analysis.output.printed import decimal
from analysis.rules.rule import FULL
from analysis.stats import equal_memory, isocache
from analysis.stats.equal_memory import Charge, Point
from analysis.studies.contrasts import Lanes, Pairing, by_problem, held_by

__all__ = ["Arms", "Held", "charged", "held", "printed", "ratios", "slot_bytes"]

Arms = Mapping[tuple[str, ...], Lanes]  # from `Study.by_arm` or `columns_by_arm`
# Measures of memory, each with its column; they may differ even if the registered memory matches.
SENSES: Mapping[str, str] = MappingProxyType(
    {
        "slots": "mean_slots",
        "peak slots": "peak_slots",
        "bytes": "evictable_bytes",
        "granted": "granted",
    }
)


class Held(NamedTuple):
    """The memory of a contrast. charge: None for arms that do not match, and against the full cache."""

    matched: isocache.Matched
    charge: Charge | None

    @property
    def points(self) -> float:
        """The charge in accuracy points; below 0 if the subject uses less memory."""
        return 0.0 if self.charge is None else self.charge.points


def held(pairing: Pairing, arms: Arms, decision: Mapping[str, Any], problems: list[str]) -> Held:
    """Match the memory of a contrast and charge it. problems: of the task, in order."""
    own, other = pairing.memory()
    if pairing.full:  # unequal on purpose, so nothing is charged
        return Held(isocache.saved(own, other, tolerance=float(decision["cache_tolerance"])), None)
    matched = isocache.matched(own, other, tolerance=float(decision["cache_tolerance"]))
    return Held(matched, charged(pairing, arms, decision, problems) if matched.matched else None)


def charged(pairing: Pairing, arms: Arms, decision: Mapping[str, Any], problems: list[str]) -> Charge:
    """Charge a contrast by the comparator's curve in this study: its other budgets, and arms with budget
    "full", which equal any policy without eviction.
    """
    counts = decision.get("memory", "slots")
    whole = ~np.isnan([pairing.own_memory, pairing.other_memory]).any(axis=(0, 2))
    here = Point(float(pairing.other_memory[whole].mean()), float(pairing.other[whole].mean()))
    base = _answers(arms[pairing.model, pairing.task, pairing.budget, pairing.against], counts, problems)
    elsewhere = [
        arm
        for (model, task, budget, name), arm in arms.items()
        if (model, task) == (pairing.model, pairing.task)
        and budget != pairing.budget
        and (name == pairing.against or budget == FULL)
    ]
    answers = [_answers(arm, counts, problems) for arm in elsewhere]
    points = [point for there in answers if (point := _point(here, base, there)) is not None]
    return equal_memory.charge(float(pairing.own_memory[whole].mean()), here, points)


def _answers(arm: Lanes, memory: str, problems: list[str]) -> NDArray[np.float64]:
    """Return accuracy and memory, [2, problem], NaN for a problem with an unmeasured lane."""
    both = np.stack([by_problem(arm, "correct", problems), held_by(arm, memory, problems)])
    found: NDArray[np.float64] = both.mean(axis=2)
    return found


def _point(here: Point, base: NDArray[np.float64], there: NDArray[np.float64]) -> Point | None:
    """Return another curve point relative to `comparator_point`, on the problems measured in both."""
    both = ~np.isnan([base, there]).any(axis=(0, 1))
    if both.sum() < 2:
        return None
    (was, had), (is_, has) = base[:, both].mean(axis=1), there[:, both].mean(axis=1)
    return Point(here.memory * float(has / had), here.accuracy + float(is_ - was))


def slot_bytes(lock: Mapping[str, Any], pairing: Pairing) -> tuple[int, int] | None:
    """Return bytes per slot of subject and comparator, if the lock has both."""
    arms = lock.get("slot_bytes", {}).get(pairing.model, {}).get("arms", {})
    if not {pairing.subject, pairing.against} <= arms.keys():
        return None
    return arms[pairing.subject]["bytes"], arms[pairing.against]["bytes"]


def ratios(
    pairing: Pairing, arms: Arms, problems: list[str], sizes: tuple[int, int] | None = None
) -> dict[str, float]:
    """Return the ratios of the subject's memory to the comparator's, in every measure that both arms have.

    "state": 1 plus the excess of the subject policy's state over the bytes of the comparator's cache. sizes:
    from `slot_bytes`; with them the bytes of the slots in use, "held bytes", are included.
    """
    place = pairing.model, pairing.task
    own = arms[*place, pairing.budget, pairing.subject]
    other = arms[*place, FULL if pairing.full else pairing.budget, pairing.against]

    def means(column: str) -> tuple[float, float]:
        tables = [by_problem(arm, column, problems) for arm in (own, other)]
        both = ~np.isnan(tables).any(axis=(0, 2))
        first, second = (float(table[both].mean()) if both.any() else np.nan for table in tables)
        return first, second

    measured = {sense: means(column) for sense, column in SENSES.items()}
    found = {sense: first / second for sense, (first, second) in measured.items() if second > 0}
    if sizes is not None and "slots" in found:
        found["held bytes"] = found["slots"] * sizes[0] / sizes[1]
    (state, carried), (_, cache) = means("state_bytes"), measured["bytes"]
    if cache > 0:
        found["state"] = 1 + (state - carried) / cache
    return found


def printed(one: Held, decided: bool, senses: Mapping[str, float], by: str) -> dict[str, Any]:
    """Return the memory part of a judgement row. decided: whether the charge changed the result."""
    charge = one.charge
    slope, nearest, points = (None, None, None) if charge is None else charge[1:]
    return {
        "by": by,
        "excess": decimal(one.matched.ratio - 1),
        "apart": decimal(one.matched.apart),
        "slope": None if slope is None else f"{slope:.3e}",
        "nearest": None if nearest is None else decimal(nearest),
        "charge": None if points is None or not np.isfinite(points) else decimal(points),
        "decided": decided,
        "ratios": {sense: decimal(ratio) for sense, ratio in senses.items()},
    }
