"""Whether two arms used the same memory, by measurement and not by the nominal budget.

`memory_charge` says what an excess within the tolerance may have bought.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from analysis.stats.clusters import cluster_values
from analysis.stats.comparison import Comparison
from analysis.stats.interval import DegenerateDifference, compare_constant

BLOCK = 1 << 20  # numbers in memory at a time


class MemoryMatch(NamedTuple):
    """Memory of the subject relative to the comparator, and whether the comparison is fair."""

    ratio: float  # mean over problems of the subject / mean over problems of the comparator
    worst: float  # the ratio of the problem furthest from 1; in `match_savings`, the largest ratio
    distance: float  # mean over problems of |subject - comparator| / mean over problems of the comparator
    is_matched: bool


class ProblemMatch(NamedTuple):
    """How many problems match individually; reported only, it decides nothing."""

    ratio: float  # mean over problems of the ratio of slots
    within: float  # share of problems on which the arms differ by at most the tolerance


class Reference(NamedTuple):
    """The comparator at one fixed budget; axes [problem, seed]; 1.0 is correct, 0.0 is not."""

    correct: NDArray[np.float64]
    slots: NDArray[np.float64]  # or bytes, if memory is registered in bytes


class InterpolatedDifference(NamedTuple):
    """The difference to the comparator at the subject's memory, interpolated between two references."""

    difference: NDArray[np.float64]  # [problem], accuracy of the subject minus the interpolated accuracy
    below: int  # index of the reference with less memory
    above: int
    weight: float  # of `above`, 0 to 1


def match_memory(subject: ArrayLike, comparator: ArrayLike, *, tolerance: float) -> MemoryMatch:
    """Compare the mean memory over whole generations, in slots or in bytes.

    subject, comparator: [problem, seed], the same problems and seeds in the same order. Seeds are averaged
    first. The arms match if neither mean exceeds the other by more than `tolerance` (0.02 is 2 %) and the
    mean absolute difference per problem is at most that too: else half of the problems could have twice the
    memory, and the other half none. The worst problem is reported and does not decide, since the output of
    one problem may end early in one arm. Raises ValueError for different shapes, no problem, or a memory
    that is not positive and finite.
    """
    subject_means, comparator_means = _problem_slots(subject, comparator)
    ratio = float(subject_means.mean() / comparator_means.mean())
    ratios = subject_means / comparator_means
    worst = float(ratios[np.argmax(np.abs(np.log(ratios)))])
    distance = float(np.abs(subject_means - comparator_means).mean() / comparator_means.mean())
    is_fair = max(ratio, 1 / ratio) <= 1 + tolerance + 1e-12 and distance <= tolerance + 1e-12
    return MemoryMatch(ratio, worst, distance, is_fair)


def match_means(subject: ArrayLike, comparator: ArrayLike, *, tolerance: float) -> MemoryMatch:
    """Compare as `match_memory`, but by the means alone, and one-sided: fair unless the subject's mean exceeds
    the comparator's by more than `tolerance` ("Minimal-Intervention KV Retention", section 4.2: mean cache
    within 2 %). A subject with less memory has no advantage; what a shortfall may have cost is charged.
    """
    match = match_memory(subject, comparator, tolerance=tolerance)
    return match._replace(is_matched=match.ratio <= 1 + tolerance + 1e-12)


def match_savings(subject: ArrayLike, full: ArrayLike, *, tolerance: float) -> MemoryMatch:
    """Compare as `match_memory`, but with the full cache: fair if the mean of `full` exceeds the subject's by
    more than `tolerance`. A subject with as much memory evicted nothing, or too little to judge eviction.
    """
    subject_means, full_means = _problem_slots(subject, full)
    ratio = float(subject_means.mean() / full_means.mean())
    distance = float(np.abs(subject_means - full_means).mean() / full_means.mean())
    return MemoryMatch(ratio, float((subject_means / full_means).max()), distance, 1 / ratio > 1 + tolerance + 1e-12)


def match_per_problem(subject: ArrayLike, comparator: ArrayLike, *, tolerance: float) -> ProblemMatch:
    """Compare as `match_memory`, for every problem separately."""
    subject_means, comparator_means = _problem_slots(subject, comparator)
    ratios = subject_means / comparator_means
    is_fair = np.maximum(ratios, 1 / ratios) <= 1 + tolerance + 1e-12
    return ProblemMatch(float(ratios.mean()), float(is_fair.mean()))


def interpolate_difference(
    correct: ArrayLike, slots: ArrayLike, references: Sequence[Reference]
) -> InterpolatedDifference | None:
    """Return paired differences at equal memory, for arms that do not match: the comparator's accuracy at the
    subject's measured slots is interpolated linearly between the two neighbouring references.

    correct, slots: [problem, seed] of the subject; the references have the same problems in the same order.
    All problems share one weight, computed from the arms' mean slots: a problem that ends before its first
    eviction has the same slots at every budget and cannot be bracketed alone. None if no two references
    bracket the subject's mean; there is no extrapolation.
    """
    subject_accuracy = np.asarray(correct, dtype=np.float64).mean(axis=1)
    target = float(np.asarray(slots, dtype=np.float64).mean(axis=1).mean())
    reference_memory = [float(reference.slots.mean(axis=1).mean()) for reference in references]
    order = sorted(range(len(reference_memory)), key=reference_memory.__getitem__)
    for below, above in itertools.pairwise(order):
        if (
            reference_memory[below] <= target <= reference_memory[above]
            and reference_memory[below] < reference_memory[above]
        ):
            weight = (target - reference_memory[below]) / (reference_memory[above] - reference_memory[below])
            low, high = (references[position].correct.mean(axis=1) for position in (below, above))
            return InterpolatedDifference(subject_accuracy - ((1 - weight) * low + weight * high), below, above, weight)
    return None


def bootstrap_interpolated(
    correct: ArrayLike,
    slots: ArrayLike,
    references: Sequence[Reference],
    estimate: InterpolatedDifference,
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
    low, high = references[estimate.below], references[estimate.above]
    tables = (correct, low.correct, high.correct, slots, low.slots, high.slots)
    columns = [np.asarray(table, dtype=np.float64).mean(axis=1) for table in tables]
    problems = np.stack(
        [column if clusters is None else cluster_values(column, clusters) for column in columns], axis=1
    )
    if len(problems) < 2:
        raise DegenerateDifference(f"correct: {len(problems)} problem(s) have no spread; pass at least two")
    rows = max(1, BLOCK // problems.size)
    sizes = (min(rows, reps - start) for start in range(0, reps, rows))
    differences = np.concatenate(
        [_interpolate_draws(problems[rng.integers(0, len(problems), (size, len(problems)))]) for size in sizes]
    )
    if np.ptp(differences) == 0 and (constant := compare_constant(np.full(len(problems), differences[0]), level)):
        return constant
    shares = ((differences <= 0).sum() + 1) / (reps + 1), ((differences >= 0).sum() + 1) / (reps + 1)
    start, end = np.quantile(differences, [(1 - level) / 2, (1 + level) / 2])
    p = float(min(1.0, 2 * min(shares)))
    return Comparison(float(estimate.difference.mean()), float(start), float(end), p)


def _interpolate_draws(problems: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the difference of each draw, [draw], from [draw, problem, 6]: the columns of
    `bootstrap_interpolated`.
    """
    subject, below, above, target, memory_below, memory_above = np.moveaxis(problems.mean(axis=1), -1, 0)
    gap = np.maximum(memory_above - memory_below, np.finfo(float).tiny)
    weight = np.clip((target - memory_below) / gap, 0, 1)
    differences: NDArray[np.float64] = np.round(subject - ((1 - weight) * below + weight * above), 12)
    return differences


def _problem_slots(subject: ArrayLike, comparator: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean slots of each problem in both arms. Raises ValueError for unmeasured values."""
    slots = [np.asarray(arm, dtype=np.float64) for arm in (subject, comparator)]
    if slots[0].shape != slots[1].shape or slots[0].ndim != 2 or slots[0].size == 0:
        raise ValueError(
            f"slots: the shapes are {slots[0].shape} and {slots[1].shape}; pass the same [problem, seed] for both arms"
        )
    if not all(np.isfinite(arm).all() and (arm > 0).all() for arm in slots):
        raise ValueError("slots: a value is not positive and finite; leave out lanes that were not measured")
    subject_means, comparator_means = (arm.mean(axis=1) for arm in slots)
    return subject_means, comparator_means
