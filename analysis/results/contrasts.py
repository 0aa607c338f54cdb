"""Pairs of arms by the registered methods, as a study has them: of each pair a difference, its intervals, its
p alone and in the family, and the smallest difference that so many problems could have shown.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from analysis.results.pairs import Pair
from analysis.results.rows import ResultError
from analysis.stats import max_t, multiplicity, sample_size
from analysis.stats.clusters import clustered
from analysis.stats.comparison import Comparison
from analysis.stats.interval import DegenerateDifference, problem_means
from analysis.stats.methods import METHODS
from analysis.stats.paired_tests import compare_at

__all__ = ["WHOLE", "Compared", "Contrast", "compared"]

LEVEL = 0.95  # coverage of the nominal interval
WHOLE = ("exact-bootstrap", "restricted-likelihood", "auto")  # methods that count problems right and wrong


class Contrast(NamedTuple):
    """The subject minus one comparator in one task, in points (-1 to 1).

    low, high: the nominal 95 % interval. low_simultaneous, high_simultaneous: at the Bonferroni level, or of
    max-t. p_holm, p_max_t: adjusted for all contrasts. detectable: the true difference that so many problems
    with this spread find with a power of 80 % at the Bonferroni level; NaN without any spread. clusters: how
    many are resampled instead of problems; None without any. gains, losses: problems and seeds that the
    subject has a higher, a lower score in.
    """

    task: str
    subject: str
    against: str
    n: int
    seeds: int
    clusters: int | None
    left_out: int
    gains: int
    losses: int
    difference: float
    low: float
    high: float
    low_simultaneous: float
    high_simultaneous: float
    p: float
    p_holm: float
    p_max_t: float
    detectable: float


class Compared(NamedTuple):
    method: str
    contrasts: list[Contrast]


class Unit(NamedTuple):
    """What is resampled: values[problem or cluster, seed or 1], divided by `scale` to lie in [-1, 1]."""

    values: NDArray[np.float64]
    scale: float


def compared(
    pairs: Sequence[Pair],
    method: str | None = None,
    *,
    alpha: float = 0.05,
    draws: int = 10_000,
    seed: int = 0,
) -> Compared:
    """Every pair by one method: `auto` where all scores are 0 or 1 and nothing is in clusters, else `t`,
    unless another is named. A pair draws the stream (seed, its place), as a registered contrast does.

    Raises ResultError for a method that cannot take scores or clusters, and for fewer than two problems.
    """
    plain = all(pair.clusters is None and _whole(pair) for pair in pairs)
    name = method or ("auto" if plain else "t")
    if name not in METHODS:
        raise ResultError(f"method: {name!r} is unknown; name one of {', '.join(METHODS)}")
    if name in WHOLE and not plain:
        able = ", ".join(one for one in METHODS if one not in WHOLE)
        raise ResultError(
            f"method: {name} counts whole problems, right or wrong; with scores or clusters: {able}"
        )
    if not 0 < alpha < 1:
        raise ResultError(f"alpha: {alpha} is no error rate; write one between 0 and 1, as 0.05")
    if draws < 1 or seed < 0:
        raise ResultError("draws, seed: draws are at least 1, a seed is at least 0")
    try:
        units = [_unit(pair) for pair in pairs]
        level = multiplicity.corrected(alpha, len(pairs))
        together = _together(pairs, units, alpha, draws, seed)
        both = [
            compare_at(name, unit.values, [LEVEL, 1 - level], draws=draws, rng=_stream(seed, place))
            for place, unit in enumerate(units)
        ]
    except DegenerateDifference as problem:
        raise ResultError(str(problem)) from None
    holm = multiplicity.adjust([nominal.p for nominal, _ in both]).holm
    return Compared(
        name,
        [
            _contrast(pair, unit, nominal, joint if METHODS[name].family else wide, adjusted, joint.p, level)
            for pair, unit, (nominal, wide), joint, adjusted in zip(
                pairs, units, both, together, holm, strict=True
            )
        ],
    )


def _stream(seed: int, place: int) -> Callable[[], np.random.Generator]:
    return lambda: np.random.default_rng([seed, place])


def _whole(pair: Pair) -> bool:
    return bool(np.isin(pair.own, (0, 1)).all() and np.isin(pair.other, (0, 1)).all())


def _unit(pair: Pair) -> Unit:
    """A cluster value can lie outside [-1, 1], which the methods refuse: they get it scaled, since none of
    their answers but the cut at -1 and 1 depends on the scale.
    """
    difference = pair.own - pair.other
    if pair.clusters is None:
        return Unit(difference, 1.0)
    values = clustered(problem_means(difference), pair.clusters)
    scale = max(1.0, float(np.abs(values).max()))
    return Unit(values[:, None] / scale, scale)


def _together(
    pairs: Sequence[Pair], units: Sequence[Unit], alpha: float, draws: int, seed: int
) -> list[Comparison]:
    """max-t over all pairs: those of the same problems are flipped together, others taken for independent."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for place, pair in enumerate(pairs):
        groups.setdefault((pair.task, pair.problems, pair.clusters), []).append(place)
    found = max_t.max_t(
        [[units[place].values for place in group] for group in groups.values()],
        level=1 - alpha,
        draws=draws,
        rng=np.random.default_rng([seed, 0]),
    )
    places = itertools.chain(*groups.values())
    of = dict(zip(places, itertools.chain(*found), strict=True))
    return [of[place] for place in range(len(pairs))]


def _contrast(
    pair: Pair,
    unit: Unit,
    nominal: Comparison,
    wide: Comparison,
    holm: float,
    joint: float,
    level: float,
) -> Contrast:
    ends = [nominal.low, nominal.high, wide.low, wide.high]
    low, high, low_wide, high_wide = (float(np.clip(end * unit.scale, -1, 1)) for end in ends)
    means = unit.values.mean(axis=1) * unit.scale
    return Contrast(
        task=pair.task,
        subject=pair.subject,
        against=pair.against,
        n=len(pair.problems),
        seeds=pair.own.shape[1],
        clusters=None if pair.clusters is None else len(means),
        left_out=pair.left_out,
        gains=int((pair.own > pair.other).sum()),
        losses=int((pair.own < pair.other).sum()),
        difference=nominal.mean * unit.scale,
        low=low,
        high=high,
        low_simultaneous=low_wide,
        high_simultaneous=high_wide,
        p=nominal.p,
        p_holm=holm,
        p_max_t=joint,
        detectable=sample_size.detectable(len(means), float(means.std(ddof=1)), level),
    )
