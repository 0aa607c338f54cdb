"""Did both arms hold the same memory? Judged on what was measured, never on the nominal budget.

What an excess within the tolerance may have bought is `equal_memory`'s question.
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

BLOCK = 1 << 20  # numbers drawn at a time


class Matched(NamedTuple):
    """Memory of the subject over that of the comparator, and whether that is a fair comparison."""

    ratio: float  # mean over problems of the subject / mean over problems of the comparator
    worst: float  # the same ratio of the one problem that is furthest from 1; of `saved`, the largest
    apart: float  # mean over problems of |subject - comparator| / mean over problems of the comparator
    matched: bool


class PerProblem(NamedTuple):
    """The share of the problems that match on their own; reported, never deciding."""

    ratio: float  # mean over problems of the ratio of slots
    within: float  # share of problems on which neither arm exceeds the other by more than the tolerance


class Reference(NamedTuple):
    """The comparator at one fixed budget. Axes [problem, seed], 1.0 correct, else 0.0."""

    correct: NDArray[np.float64]
    slots: NDArray[np.float64]  # or bytes, where these are the registered memory


class Interpolated(NamedTuple):
    """The comparator at the memory of the subject, between two of its references."""

    difference: NDArray[np.float64]  # [problem], accuracy of the subject minus that of the comparator there
    below: int  # place of the reference that holds less, among those given
    above: int
    weight: float  # of `above`, 0 to 1


def matched(subject: ArrayLike, comparator: ArrayLike, *, tolerance: float) -> Matched:
    """Compare what was held on average over a whole generation, in slots or in bytes.

    subject, comparator: [problem, seed], the same problems and seeds in the same order. Seeds are averaged
    first. Matched when neither arm's mean exceeds the other's by more than `tolerance` (0.02 is 2 %), and
    problem by problem they are not further apart than that on average: else half of the problems could have
    twice the memory, and the other half none. The worst problem is reported and does not decide: the output
    of one problem may end early in one arm. Raises ValueError for different shapes, no problem, or a memory
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
    """As `matched`, but against the full cache: fair where the mean of `full` exceeds the subject's by more
    than `tolerance`. A subject that holds as much evicted nothing, or too little to say anything of eviction.
    """
    own, other = _problem_slots(subject, full)
    ratio = float(own.mean() / other.mean())
    apart = float(np.abs(own - other).mean() / other.mean())
    return Matched(ratio, float((own / other).max()), apart, 1 / ratio > 1 + tolerance + 1e-12)


def per_problem(subject: ArrayLike, comparator: ArrayLike, *, tolerance: float) -> PerProblem:
    """As `matched`, for every problem on its own."""
    own, other = _problem_slots(subject, comparator)
    ratios = own / other
    fair = np.maximum(ratios, 1 / ratios) <= 1 + tolerance + 1e-12
    return PerProblem(float(ratios.mean()), float(fair.mean()))


def interpolated(
    correct: ArrayLike, slots: ArrayLike, references: Sequence[Reference]
) -> Interpolated | None:
    """Paired differences at equal memory, for arms that do not match: what the comparator would have got with
    the subject's measured slots, linear between the two neighbouring references that bracket them.

    correct, slots: [problem, seed] of the subject; the references have the same problems in the same order.
    One weight holds for all problems, that of the arms' mean slots: a problem that ends before its first
    eviction holds the same slots at every budget and could not be bracketed alone. None where no two
    references bracket the subject's mean: there is no extrapolation.
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
    """Percentile interval of the difference that `interpolated` found, and its two-sided p.

    The arguments of `interpolated`, and what it gave for them. A draw is of whole problems, with the slots
    that they held: the weight is measured anew in each draw, between the same two references, so that the
    interval holds its error too. A weight outside [0, 1] is cut there. clusters: of each problem; then whole
    clusters are drawn, every column by its cluster values.

    p: twice the smaller share of draws on either side of zero, with the +1 correction. Where no draw differs
    `interval.without_spread` answers. Raises DegenerateDifference for fewer than two problems.
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
    """[draw] of [draw, problem, 6], the columns of `resampled`."""
    own, below, above, target, less, more = np.moveaxis(problems.mean(axis=1), -1, 0)
    gap = np.maximum(more - less, np.finfo(float).tiny)
    weight = np.clip((target - less) / gap, 0, 1)
    found: NDArray[np.float64] = np.round(own - ((1 - weight) * below + weight * above), 12)
    return found


def _problem_slots(
    subject: ArrayLike, comparator: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean slots of each problem in both arms; refuses what was not measured."""
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
