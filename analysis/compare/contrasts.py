"""Contrasts of pairs of arms by the registered methods: a difference, its intervals, its p alone and in the
family, and the smallest detectable difference.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from analysis.compare.pairs import Pair
from analysis.compare.scored_answers import ResultError
from analysis.stats import multiplicity, resampled_units, sample_size
from analysis.stats.comparison import Comparison
from analysis.stats.interval import DegenerateDifference
from analysis.stats.methods import AS_PUBLISHED, METHODS, METHODS_FOR_SCORES, MIN_CLUSTERS, effective_clusters
from analysis.stats.rank_intervals import RankedArms, rank_arms

LEVEL = 0.95  # coverage of the nominal interval
MOST_DRAWS = 10_000_000
# Problems or clusters below which the percentile bootstrap of scores covers 91 % or less of nominal 95 %
# (84 % for five, 71 % for three). For right-or-wrong answers its ends are widened to the exact ones; scores
# have no exact ends.
LEAST_RESAMPLED = 40


class Contrast(NamedTuple):
    """The subject minus one comparator in one task, in points (-1 to 1).

    low, high: the nominal 95 % interval. low_simultaneous, high_simultaneous: at the Bonferroni level, or of max-t.
    p_holm, p_max_t: adjusted for all contrasts. detectable: the true difference that this number of problems with this
    spread finds with a power of 80 % at the Bonferroni level, above 1 if there is none; NaN without any spread.
    clusters: how many are resampled instead of problems, effective_clusters: how many of one size have the same weight;
    None without any. left_out: problems that are not paired; low_bound, high_bound: of the difference with them,
    whatever is missing. gains, losses: problems and seeds in which the subject has a higher, a lower score.
    """

    task: str
    subject: str
    against: str
    n: int
    seeds: int
    clusters: int | None
    effective_clusters: int | None
    left_out: int
    low_bound: float
    high_bound: float
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


class FamilyResult(NamedTuple):
    method: str
    contrasts: list[Contrast]


def compare_pairs(
    pairs: Sequence[Pair], method: str | None = None, *, alpha: float = 0.05, draws: int = 10_000, seed: int = 0
) -> FamilyResult:
    """Compare every pair by one method: `auto` if all scores are 0 or 1 and there are no clusters, else `t`,
    unless another is named. A pair uses the random stream (seed, its index), as a registered contrast does.

    Raises ResultError for a method that cannot take scores or clusters, or this few of them, for an effective
    number of clusters below `LEAST`, and for fewer than two problems.
    """
    all_binary = all(pair.clusters is None and _is_binary(pair) for pair in pairs)
    name = method or ("auto" if all_binary else "t")
    known = [method for method in METHODS if method != AS_PUBLISHED]  # its error at this size is not simulated
    if name not in known:
        raise ResultError(f"method: {name!r} is unknown; name one of {', '.join(known)}")
    if METHODS[name].needs_counts and not all_binary:
        allowed = ", ".join(METHODS_FOR_SCORES)
        raise ResultError(
            f"method: {name} needs one answer per problem, right or wrong; with scores or clusters use: {allowed}"
        )
    if not 0 < alpha < 1:
        raise ResultError(f"alpha: {alpha} is not an error rate; write a number between 0 and 1, as 0.05")
    if not 1 <= draws <= MOST_DRAWS or seed < 0:
        raise ResultError(f"draws, seed: draws must be 1 to {MOST_DRAWS}, and a seed at least 0")
    for pair in pairs:
        _refuse_few(pair, name)
    try:
        level = multiplicity.corrected_alpha(alpha, len(pairs))
        family = _compare_family(pairs, alpha, draws, seed)
        intervals = [
            resampled_units.compare_at_levels(
                name, _difference(pair), pair.clusters, [LEVEL, 1 - level], draws=draws, rng=_stream(seed, index)
            )
            for index, pair in enumerate(pairs)
        ]
    except DegenerateDifference as problem:
        raise ResultError(str(problem)) from None
    holm = multiplicity.adjust([nominal.p for nominal, _ in intervals]).holm
    return FamilyResult(
        name,
        [
            _contrast(pair, nominal, joint if METHODS[name].family else wide, adjusted, joint.p, level)
            for pair, (nominal, wide), joint, adjusted in zip(pairs, intervals, family, holm, strict=True)
        ],
    )


class ArmRank(NamedTuple):
    """The rank of an arm among those of a task, 1 for the highest mean. first, last: the ranks that it may have,
    to hold together for all arms and tasks at 1 - alpha, by max-t: with few clusters, or scores that are mostly alike,
    they hold less often.
    """

    task: str
    arm: str
    score: float
    first: int
    last: int


def rank_pairs(pairs: Sequence[Pair], *, alpha: float, draws: int, seed: int) -> list[ArmRank]:
    """Rank the arms of every task that has three or more on the same problems, best first; pairs share a subject. Of
    several such groups in a task the largest is ranked.
    """
    groups: dict[tuple[object, ...], list[Pair]] = {}
    for pair in pairs:
        groups.setdefault((pair.task, pair.problems, pair.clusters, pair.subject_scores.shape), []).append(pair)
    largest: dict[str, list[Pair]] = {}
    for group in groups.values():
        largest[group[0].task] = max(largest.get(group[0].task, []), group, key=len)
    members = [group for group in largest.values() if len(group) > 1]
    if not members:
        return []
    scores = [
        RankedArms([group[0].subject_scores, *(pair.comparator_scores for pair in group)], group[0].clusters)
        for group in members
    ]
    ranks = rank_arms(scores, level=1 - alpha, draws=draws, rng=np.random.default_rng([seed, 1]))
    return [
        ArmRank(group[0].task, arm, *rank)
        for group, intervals in zip(members, ranks, strict=True)
        for arm, rank in sorted(
            zip([group[0].subject, *(pair.against for pair in group)], intervals, strict=True),
            key=lambda ranked: -ranked[1].mean,
        )
    ]


def _stream(seed: int, index: int) -> Callable[[], np.random.Generator]:
    return lambda: np.random.default_rng([seed, index])


def _refuse_few(pair: Pair, method: str) -> None:
    size = len(pair.problems) if pair.clusters is None else effective_clusters(pair.clusters)
    label = f"{pair.task} {pair.subject} - {pair.against}".strip()
    if pair.clusters is not None and size < MIN_CLUSTERS:
        raise ResultError(
            f"cluster: {label}: {len(set(pair.clusters))} clusters count as {size} of equal size, and with "
            f"fewer than {MIN_CLUSTERS} no interval is valid; name a field with more clusters, or with "
            "clusters of more equal size"
        )
    if method == "bootstrap" and size < LEAST_RESAMPLED and not (pair.clusters is None and _is_binary(pair)):
        units = "problems with scores" if pair.clusters is None else "clusters of equal size"
        raise ResultError(
            f"method: bootstrap: {label}: its interval is not valid with {size} {units}, nor with any "
            f"number below {LEAST_RESAMPLED}; write t or sign-flip"
        )


def _is_binary(pair: Pair) -> bool:
    return bool(np.isin(pair.subject_scores, (0, 1)).all() and np.isin(pair.comparator_scores, (0, 1)).all())


def _difference(pair: Pair) -> NDArray[np.float64]:
    return pair.subject_scores - pair.comparator_scores


def _compare_family(pairs: Sequence[Pair], alpha: float, draws: int, seed: int) -> list[Comparison]:
    """Compare all pairs by max-t: pairs of the same problems are flipped together, others count as independent."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for index, pair in enumerate(pairs):
        groups.setdefault((pair.task, pair.problems, pair.clusters), []).append(index)
    requests = [
        [(_difference(pairs[index]), pairs[index].clusters, 0.0) for index in group] for group in groups.values()
    ]
    rng = np.random.default_rng([seed, 0])
    results = resampled_units.compare_simultaneously(requests, level=1 - alpha, draws=draws, rng=rng)
    indices = itertools.chain(*groups.values())
    by_index = dict(zip(indices, itertools.chain(*results), strict=True))
    return [by_index[index] for index in range(len(pairs))]


def _contrast(pair: Pair, nominal: Comparison, wide: Comparison, holm: float, joint: float, level: float) -> Contrast:
    units = resampled_units.resampling_units(_difference(pair), pair.clusters)
    means = units.values.mean(axis=1) * units.scale
    return Contrast(
        task=pair.task,
        subject=pair.subject,
        against=pair.against,
        n=len(pair.problems),
        seeds=pair.subject_scores.shape[1],
        clusters=None if pair.clusters is None else resampled_units.count_units(pair.clusters, len(pair.problems)),
        effective_clusters=None if pair.clusters is None else effective_clusters(pair.clusters),
        left_out=pair.left_out,
        low_bound=pair.low_bound,
        high_bound=pair.high_bound,
        gains=int((pair.subject_scores > pair.comparator_scores).sum()),
        losses=int((pair.subject_scores < pair.comparator_scores).sum()),
        difference=nominal.mean,
        low=nominal.low,
        high=nominal.high,
        low_simultaneous=wide.low,
        high_simultaneous=wide.high,
        p=nominal.p,
        p_holm=holm,
        p_max_t=joint,
        detectable=sample_size.detectable_difference(len(means), float(means.std(ddof=1)), level),
    )
