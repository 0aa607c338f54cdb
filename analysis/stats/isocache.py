"""Whether two arms used the same memory, by measurement and not by the nominal budget.

`memory_charge` says what an excess within the tolerance may have bought.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from analysis.stats.clusters import clustered
from analysis.stats.comparison import Comparison
from analysis.stats.interval import DegenerateDifference, without_spread

__all__ = [
    "Interpolated",
    "Matched",
    "PerProblem",
    "Reference",
    "interpolated",
    "matched",
    "per_problem",
    "resampled",
    "saved",
]

BLOCK = 1 << 20  # numbers in memory at a time


class Matched(NamedTuple):
    """Memory of the subject relative to the comparator, and whether the comparison is fair."""

    ratio: float  # mean over problems of the subject / mean over problems of the comparator
    worst: float  # the ratio of the problem furthest from 1; in `match_savings`, the largest ratio
    apart: float  # mean over problems of |subject - comparator| / mean over problems of the comparator
    matched: bool


class PerProblem(NamedTuple):
    """How many problems match individually; reported only, it decides nothing."""

    ratio: float  # mean over problems of the ratio of slots
    within: float  # share of problems on which the arms differ by at most the tolerance


class Reference(NamedTuple):
    """The comparator at one fixed budget; axes [problem, seed]; 1.0 is correct, 0.0 is not."""

    correct: NDArray[np.float64]
    slots: NDArray[np.float64]  # or bytes, if memory is registered in bytes


class Interpolated(NamedTuple):
    """The difference to the comparator at the subject's memory, interpolated between two references."""

    difference: NDArray[np.float64]  # [problem], accuracy of the subject minus the interpolated accuracy
    below: int  # index of the reference with less memory
    above: int
    weight: float  # of `above`, 0 to 1


def matched(subject: ArrayLike, comparator: ArrayLike, *, tolerance: float) -> Matched:
    """Compare the mean memory over whole generations, in slots or in bytes.

    subject, comparator: [problem, seed], the same problems and seeds in the same order. Seeds are averaged
    first. The arms match if neither mean exceeds the other by more than `tolerance` (0.02 is 2 %) and the
    mean absolute difference per problem is at most that too: else half of the problems could have twice the
    memory, and the other half none. The worst problem is reported and does not decide, since the output of
    one problem may end early in one arm. Raises ValueError for different shapes, no problem, or a memory
    that is not positive and finite.
    """
    own, other = _problem_slots(subject, comparator)
    ratio = float(own.mean() / other.mean())
    ratios = own / other
    worst = float(ratios[np.argmax(np.abs(np.log(ratios)))])
    apart = float(np.abs(own - other).mean() / other.mean())
    fair = max(ratio, 1 / ratio) <= 1 + tolerance + 1e-12 and apart <= tolerance + 1e-12
    return Matched(ratio, worst, apart, fair)


def saved(subject: ArrayLike, full: ArrayLike, *, tolerance: float) -> Matched:
    """Compare as `match_memory`, but with the full cache: fair if the mean of `full` exceeds the subject's by
    more than `tolerance`. A subject with as much memory evicted nothing, or too little to judge eviction.
    """
    own, other = _problem_slots(subject, full)
    ratio = float(own.mean() / other.mean())
    apart = float(np.abs(own - other).mean() / other.mean())
    return Matched(ratio, float((own / other).max()), apart, 1 / ratio > 1 + tolerance + 1e-12)


def per_problem(subject: ArrayLike, comparator: ArrayLike, *, tolerance: float) -> PerProblem:
    """Compare as `match_memory`, for every problem separately."""
    own, other = _problem_slots(subject, comparator)
    ratios = own / other
    fair = np.maximum(ratios, 1 / ratios) <= 1 + tolerance + 1e-12
    return PerProblem(float(ratios.mean()), float(fair.mean()))


def interpolated(
    correct: ArrayLike, slots: ArrayLike, references: Sequence[Reference]
) -> Interpolated | None:
    """Return paired differences at equal memory, for arms that do not match: the comparator's accuracy at the
    subject's measured slots is interpolated linearly between the two neighbouring references.

    correct, slots: [problem, seed] of the subject; the references have the same problems in the same order.
    All problems share one weight, computed from the arms' mean slots: a problem that ends before its first
    eviction has the same slots at every budget and cannot be bracketed alone. None if no two references
    bracket the subject's mean; there is no extrapolation.
    """
    own = np.asarray(correct, dtype=np.float64).mean(axis=1)
    target = float(np.asarray(slots, dtype=np.float64).mean(axis=1).mean())
    held = [float(reference.slots.mean(axis=1).mean()) for reference in references]
    order = sorted(range(len(held)), key=held.__getitem__)
    for below, above in itertools.pairwise(order):
        if held[below] <= target <= held[above] and held[below] < held[above]:
            weight = (target - held[below]) / (held[above] - held[below])
            low, high = (references[place].correct.mean(axis=1) for place in (below, above))
            return Interpolated(own - ((1 - weight) * low + weight * high), below, above, weight)
    return None


def resampled(
    correct: ArrayLike,
    slots: ArrayLike,
    references: Sequence[Reference],
    found: Interpolated,
    *,
    reps: int = 10_000,
    level: float = 0.95,
    rng: np.random.Generator,
    clusters: Sequence[str] | None = None,
) -> Comparison:
    """Return the percentile interval and two-sided p of the difference from `interpolate_difference`.

    Takes the arguments of `interpolate_difference` and its result. A draw takes whole problems with their
    slots and recomputes the weight between the same two references, so that the interval includes the error
    of the weight. Weights are clipped to [0, 1]. clusters: of each problem; whole clusters are then drawn,
    every column by its cluster values.

    p: twice the smaller share of draws on either side of zero, with the +1 correction. If all draws are
    equal, `interval.compare_constant` applies. Raises DegenerateDifference for fewer than two problems.
    """
    low, high = references[found.below], references[found.above]
    tables = (correct, low.correct, high.correct, slots, low.slots, high.slots)
    each = [np.asarray(table, dtype=np.float64).mean(axis=1) for table in tables]
    problems = np.stack([one if clusters is None else clustered(one, clusters) for one in each], axis=1)
    if len(problems) < 2:
        raise DegenerateDifference(f"correct: {len(problems)} problem(s) show no spread; pass at least two")
    rows = max(1, BLOCK // problems.size)
    sizes = (min(rows, reps - start) for start in range(0, reps, rows))
    drawn = np.concatenate(
        [_at_equal_memory(problems[rng.integers(0, len(problems), (size, len(problems)))]) for size in sizes]
    )
    if np.ptp(drawn) == 0 and (flat := without_spread(np.full(len(problems), drawn[0]), level)):
        return flat
    shares = ((drawn <= 0).sum() + 1) / (reps + 1), ((drawn >= 0).sum() + 1) / (reps + 1)
    start, end = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    p = float(min(1.0, 2 * min(shares)))
    return Comparison(float(found.difference.mean()), float(start), float(end), p)


def _at_equal_memory(problems: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the difference of each draw, [draw], from [draw, problem, 6]: the columns of
    `bootstrap_interpolated`.
    """
    own, below, above, target, less, more = np.moveaxis(problems.mean(axis=1), -1, 0)
    gap = np.maximum(more - less, np.finfo(float).tiny)
    weight = np.clip((target - less) / gap, 0, 1)
    found: NDArray[np.float64] = np.round(own - ((1 - weight) * below + weight * above), 12)
    return found


def _problem_slots(
    subject: ArrayLike, comparator: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean slots of each problem in both arms. Raises ValueError for unmeasured values."""
    held = [np.asarray(arm, dtype=np.float64) for arm in (subject, comparator)]
    if held[0].shape != held[1].shape or held[0].ndim != 2 or held[0].size == 0:
        raise ValueError(
            f"slots: shapes {held[0].shape} and {held[1].shape}; pass the same [problem, seed] for both arms"
        )
    if not all(np.isfinite(arm).all() and (arm > 0).all() for arm in held):
        raise ValueError(
            "slots: a value is not positive and finite; an arm that holds nothing was not measured"
        )
    own, other = (arm.mean(axis=1) for arm in held)
    return own, other
