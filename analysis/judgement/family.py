"""The contrasts of a family by the registered method, for the rule and for the printed judgement."""

import itertools
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from analysis.judgement import contrasts, floor, memory, opened_lanes, repeated_contrasts
from analysis.judgement.contrasts import Pairing
from analysis.judgement.floor import Floor
from analysis.judgement.memory import Arms, ContrastMemory
from analysis.judgement.study_table import Study
from analysis.judgement.untrusted_files import RecordError
from analysis.rules.rule import Contrast, is_better, is_worse, measures_memory
from analysis.rules.sentences import contrast_name
from analysis.stats import memory_charge, memory_matching, multiplicity, resampled_units
from analysis.stats.comparison import Comparison, Margins, Position
from analysis.stats.methods import METHODS, METHODS_FOR_SCORES, draws_and_seed, effective_clusters
from analysis.stats.resampled_units import Clusters
from protocol.formats.json_text import format_decimal

if TYPE_CHECKING:
    from analysis.stats.sequential import Look


LEVEL = 0.95  # coverage of the nominal interval
REPORTED_METHODS = ("bootstrap", "t", "sign-flip")  # methods whose p is always reported


class Estimate(NamedTuple):
    """The estimates for one pairing. Every p tests a difference beyond what memory may explain: see `memory_charge`."""

    nominal: Comparison  # by the registered method, at 95 %
    uncharged: Comparison  # by the registered method, at the Bonferroni level or by max-t
    reported_p: dict[str, float]  # p by method; without methods that draw if no draws are registered
    memory: ContrastMemory
    margins: Margins | None  # at the Bonferroni level, if a margin is registered
    # p of no difference by the registered method, without the memory charge; at a look, of its data alone
    uncharged_p: float
    has_moved_limit: bool  # whether the memory charge moved a limit across a margin
    position: Position | None = None  # at a look of a sequential design
    neighbour: Comparison | None = None  # as `uncharged`, against the comparator with as much memory

    @property
    def simultaneous(self) -> Comparison:
        """The simultaneous comparison at equal memory."""
        if self.neighbour is None:
            return memory_charge.widen_interval(self.uncharged, self.memory.null)
        low, high = min(self.uncharged.low, self.neighbour.low), max(self.uncharged.high, self.neighbour.high)
        return self.uncharged._replace(low=low, high=high)

    @property
    def is_decided_by_charge(self) -> bool:
        """Whether only the memory charge prevents a win, a loss or staying within a margin."""
        wide = self.simultaneous
        alone = self.uncharged.low > 0 or self.uncharged.high < 0
        return self.has_moved_limit or (alone and wide.low <= 0 <= wide.high)


class PairingEstimate(NamedTuple):
    """A pairing with its estimate. adjusted: p adjusted for the family, 1 without an estimate."""

    pairing: Pairing
    estimate: Estimate | None  # None for fewer than two measured problems
    adjusted: float
    is_informative: bool = True
    repeats: Pairing | None = None  # the same contrast before this one

    def hold_against(self, neighbour: "PairingEstimate", margin: float) -> "PairingEstimate":
        """Return the estimate in which a win or a loss holds against the comparator at its budget and at its neighbour
        with as much memory. Each test has the level of the contrast: both have to reject (Berger 1982), and the
        difference at equal memory lies between the two, since accuracy does not rise and fall again in between.
        """
        own, other = self.estimate, neighbour.estimate
        if own is None or other is None or own.memory.neighbour is None:
            return self
        is_agreed = own.nominal.mean * other.nominal.mean > 0

        def larger(first: float, second: float) -> float:
            return max(first, second) if is_agreed else 1.0

        margins, position, has_moved_limit = own.margins, own.position, False
        if own.margins is not None and other.margins is not None:
            margins = memory_charge.widen_margins([own.margins, other.margins])
            has_moved_limit = _limit_sides(margins, margin) != _limit_sides(own.margins, margin)
        if position is not None and other.position is not None:
            position = min(position, other.position, key=lambda each: each.z if own.margins else abs(each.z))
            if own.margins is None and not is_agreed:
                position = position._replace(z=0.0)
        both = own._replace(
            nominal=own.nominal._replace(p=larger(own.nominal.p, other.nominal.p)),
            reported_p={name: larger(p, other.reported_p[name]) for name, p in own.reported_p.items()},
            margins=margins,
            has_moved_limit=has_moved_limit,
            position=position,
            neighbour=other.uncharged,
        )
        return self._replace(estimate=both, adjusted=larger(self.adjusted, neighbour.adjusted))

    def contrast(self) -> Contrast | None:
        """Return the contrast for the rule."""
        if self.estimate is None:
            return None
        estimate, pairing = self.estimate, self.pairing
        matched = estimate.memory.match
        return Contrast(
            model=pairing.model,
            task=pairing.task,
            budget=pairing.budget,
            subject=pairing.subject,
            against=pairing.against,
            delta=estimate.nominal.mean,
            # Rounded as printed, so that a printed zero reaches zero.
            high=float(f"{estimate.simultaneous.high:.6f}"),
            p=estimate.nominal.p,
            adjusted=self.adjusted,
            matched=matched.is_matched,
            net=pairing.net,
            lanes=pairing.subject_correct.size,
            margins=estimate.margins,
            memory=matched.ratio,
            charge=estimate.memory.points,
            uncharged_p=estimate.uncharged_p,
            informative=self.is_informative,
            repeated=self.repeats is not None,
        )


class FamilyComparison(NamedTuple):
    level: float  # level of one contrast
    contrasts: list[Contrast | None]  # None without an estimate
    rows: list[dict[str, Any]]  # rows of the judgement


def compare_family(
    study: Study,
    sides: Sequence[tuple[str, str]],
    alpha: float,
    *,
    first: int = 0,
    corrected: bool = True,
    required_floor: Floor | None = None,
) -> FamilyComparison:
    """Compare every pair of arms in every model, task and budget.

    first: index of the first pairing among all of the study; the index seeds the draws, also of max-t.
    required_floor: of a study that is judged by it.

    Raises ValueError without arm pairs: an empty family would satisfy any condition on all contrasts.
    """
    if not sides:
        raise ValueError("sides: an empty family has no contrast; name at least one comparator")
    decision = study.lock["protocol"]["content"]["decision"]
    pairings = contrasts.pair_arms(study, sides)
    _check_counting(pairings, decision["method"])
    level = multiplicity.corrected_alpha(alpha, len(pairings) if corrected else 1)
    arms, items = study.columns_by_arm(), study.lock["items"]
    memories = [_match_memory(pairing, arms, study.lock, level) for pairing in pairings]
    is_family_method, look = METHODS[decision["method"]].family, _read_look(study)

    def estimate(index: int, pairing: Pairing) -> Estimate | None:
        return _estimate(pairing, first + index, decision, level, look, memories[index])

    def adjust_family(pairings: Sequence[Pairing], estimates: Sequence[Estimate | None]) -> list[PairingEstimate]:
        p = list(map(_nominal_p, estimates))
        family = list(map(PairingEstimate, pairings, estimates, multiplicity.adjust(p).bonferroni if corrected else p))
        if not (is_family_method and corrected):
            return family
        times, seed = draws_and_seed(decision)
        return _apply_max_t(family, np.random.default_rng([seed, first]), times, alpha)

    estimates = list(itertools.starmap(estimate, enumerate(pairings)))
    family = adjust_family(pairings, estimates)
    neighbours = {
        index: of_memory.neighbour.pairing
        for index, of_memory in enumerate(memories)
        if of_memory is not None and of_memory.neighbour is not None
    }
    if neighbours:
        margin = float(decision.get("margin", 0))
        others = [neighbours.get(index, pairing) for index, pairing in enumerate(pairings)]
        beside = {index: estimate(index, pairing) for index, pairing in neighbours.items()}
        against = adjust_family(others, [beside.get(index, own) for index, own in enumerate(estimates)])
        family = [member.hold_against(other, margin) for member, other in zip(family, against, strict=True)]
    p = [_nominal_p(member.estimate) for member in family]
    holm = multiplicity.adjust(p).holm if corrected else p
    floors: list[dict[str, Any]] = []
    if required_floor is not None:
        floors = [floor.floor_row(pairing, required_floor) for pairing in pairings]
        repeated = repeated_contrasts.find_repeated(arms, study.lock, pairings)
        family = [
            member._replace(is_informative=not floor_row["uninformative"], repeats=earlier)
            for member, floor_row, earlier in zip(family, floors, repeated, strict=True)
        ]
    rule_contrasts = [member.contrast() for member in family]
    rows = [_contrast_row(*parts, alpha) for parts in zip(family, rule_contrasts, holm, strict=True)]
    for index, (row, member) in enumerate(zip(rows, family, strict=True)):
        if is_family_method:
            row["p_adjusted"] = format_decimal(member.adjusted)
        if floors:
            row |= {"floor": floors[index], "p_decisive": format_decimal(member.adjusted)}
        if member.repeats is not None:
            row["repeats"] = contrast_name(member.repeats._asdict())
        if member.estimate is not None and measures_memory(decision):
            sizes = memory.slot_bytes(study.lock, member.pairing)
            senses = memory.memory_ratios(member.pairing, arms, items[member.pairing.task]["confirm"], sizes)
            registered_measure = decision.get("memory", "slots")
            row["memory"] = memory.memory_row(
                member.estimate.memory, member.estimate.is_decided_by_charge, senses, registered_measure
            )
        if member.estimate is not None and member.estimate.position is not None:
            row["look"] = dict(zip(Position._fields, map(format_decimal, member.estimate.position), strict=True))
        if "memory" in decision and not member.pairing.full:
            row["isocache"] = _isocache_row(study.lock, arms, member.pairing, member.estimate, first + index)
    return FamilyComparison(level, rule_contrasts, rows)


def _nominal_p(estimate: Estimate | None) -> float:
    return 1.0 if estimate is None else estimate.nominal.p


def _check_counting(pairings: Sequence[Pairing], method: str) -> None:
    """Raise RecordError if the method cannot take scores or clusters; registering refuses the same."""
    other = next((pairing for pairing in pairings if not pairing.is_countable), None)
    if other is not None and METHODS[method].needs_counts:
        what = "scores" if other.has_scores else "clusters"
        raise RecordError(
            f"decision.method: {method} needs right and wrong answers, but {other.task} has {what}; choose "
            f"one of: {', '.join(METHODS_FOR_SCORES)}"
        )


def _match_memory(pairing: Pairing, arms: Arms, lock: Mapping[str, Any], level: float) -> ContrastMemory | None:
    """Return the memory match; None for fewer than two problems with all lanes measured, or one cluster."""
    decision = lock["protocol"]["content"]["decision"]
    compared = pairing.measured_memory()[0] if measures_memory(decision) else pairing.problems
    if len(compared) < 2 or pairing.units < 2:
        return None
    return memory.contrast_memory(pairing, arms, lock, level, has_neighbours=True)


def _apply_max_t(
    family: Sequence[PairingEstimate], rng: np.random.Generator, times: int, alpha: float
) -> list[PairingEstimate]:
    """Return the family with the simultaneous intervals and p of max-t.

    Contrasts of a task with the same problems are flipped together. All others are treated as independent,
    which is conservative (Sidak 1967).
    """
    groups: dict[tuple[str, ...], list[int]] = {}
    nulls: dict[int, float | None] = {}  # the null mean difference; None if memory may explain the observed one
    for index, member in enumerate(family):
        if member.estimate is not None:
            groups.setdefault((member.pairing.task, *member.pairing.problems), []).append(index)
            nulls[index] = memory_charge.nearest_null(member.estimate.nominal.mean, member.estimate.memory.null)
    if not groups:
        return list(family)
    requests = [
        [(family[index].pairing.difference, family[index].pairing.clusters, nulls[index] or 0.0) for index in group]
        for group in groups.values()
    ]
    comparisons = resampled_units.compare_simultaneously(requests, level=1 - alpha, draws=times, rng=rng)
    tested = list(family)
    for index, comparison in zip(itertools.chain(*groups.values()), itertools.chain(*comparisons), strict=True):
        estimate, joint = family[index].estimate, comparison if nulls[index] is not None else comparison._replace(p=1.0)
        assert estimate is not None
        tested[index] = family[index]._replace(estimate=estimate._replace(uncharged=joint), adjusted=joint.p)
    return tested


def _isocache_row(
    lock: Mapping[str, Any], arms: Arms, pairing: Pairing, estimate: Estimate | None, index: int
) -> dict[str, Any]:
    """Return memory per problem and, for arms that do not match, the difference at the subject's memory.

    It draws the stream of its contrast and decides nothing. Differences at interpolated memory are not
    integers, so that Student's t replaces the exact methods.
    """
    content = lock["protocol"]["content"]
    decision, budgets = content["decision"], content["budgets"]
    if estimate is None:
        return {"ratio": None, "within": None, "interpolated": None, "why": "too few"}
    tolerance, ratio = float(decision["cache_tolerance"]), estimate.memory.match.ratio
    match = memory_matching.match_per_problem(*pairing.measured_memory(), tolerance=tolerance)
    row = {"ratio": format_decimal(match.ratio), "within": format_decimal(match.within), "interpolated": None}
    if estimate.memory.match.is_matched and max(ratio, 1 / ratio) <= 1 + tolerance + 1e-12:
        return row | {"why": "matched"}
    (subject_reference, *comparator_references), finished = contrasts.reference_tables(
        pairing, arms, budgets, lock["items"][pairing.task]["confirm"], lock
    )
    clusters = contrasts.problem_clusters(lock, pairing.task, finished)
    if resampled_units.count_units(clusters, len(finished)) < 2:
        return row | {"why": "too few"}
    estimate_at_memory = memory_matching.interpolate_difference(
        subject_reference.correct, subject_reference.slots, comparator_references
    )
    if estimate_at_memory is None:
        return row | {"why": "outside"}
    method = decision["method"] if METHODS[decision["method"]].draws else "t"
    (comparison,) = _compare(estimate_at_memory.difference[:, None], clusters, index, decision, method, [LEVEL])
    values = dict(zip(("difference", "low", "high", "p"), map(format_decimal, comparison), strict=True))
    between = [budgets[estimate_at_memory.below], budgets[estimate_at_memory.above]]
    return row | {
        "interpolated": values | {"weight": format_decimal(estimate_at_memory.weight), "between": between},
        "why": "interpolated",
    }


def _read_look(study: Study) -> "Look | None":
    if opened_lanes.FIELD not in study.lock:
        return None
    from analysis.judgement.looks import read_look

    return read_look(study.lock)


def _estimate(
    pairing: Pairing,
    index: int,
    decision: Mapping[str, Any],
    corrected: float,
    look: "Look | None",
    contrast_memory: ContrastMemory | None,
) -> Estimate | None:
    """Estimate one pairing. Every method draws the stream of (decision.seed, index). For max-t, a method for
    families, a single contrast uses Student's t.
    """
    if contrast_memory is None:
        return None
    difference, method, margins, has_moved_limit = pairing.difference, decision["method"], None, False
    difference_and_clusters = difference, pairing.clusters
    reported = [name for name in REPORTED_METHODS if METHODS[method].draws or name == "t"]
    null = memory_charge.nearest_null(float(difference.mean()), contrast_memory.null)
    levels = [LEVEL, 1 - corrected] if look is None else [look.coverage(LEVEL), look.coverage(1 - corrected)]
    observed, corrected_comparison = _compare(*difference_and_clusters, index, decision, method, levels, null)
    nominal = {
        name: observed
        if name == method
        else _compare(*difference_and_clusters, index, decision, name, levels[:1], null)[0]
        for name in dict.fromkeys([*reported, method])
    }
    if look is not None:
        nominal = {name: look.adjust(comparison) for name, comparison in nominal.items()}
    if "margin" in decision:
        margin, level = float(decision["margin"]), corrected if look is None else look.level(corrected)
        margins = resampled_units.tost(
            *difference_and_clusters, margin, contrast_memory.null, alpha=level, method=method
        )
        alone = resampled_units.tost(*difference_and_clusters, margin, 0.0, alpha=level, method=method)
        has_moved_limit = _limit_sides(margins, margin) != _limit_sides(alone, margin)
    plain = observed if null == 0 else _compare(*difference_and_clusters, index, decision, method, [LEVEL])[0]
    position = None
    if look is not None and margins is not None:
        position = look.locate_margin(margins, float(decision["alpha"]))
        margins = look.adjust_margins(margins)
    elif look is not None:
        position = look.locate(observed, corrected)
    return Estimate(
        nominal=nominal[method],
        uncharged=corrected_comparison,
        reported_p={name: nominal[name].p for name in reported},
        memory=contrast_memory,
        margins=margins,
        uncharged_p=plain.p,
        has_moved_limit=has_moved_limit,
        position=position,
    )


def _limit_sides(limits: Margins, margin: float) -> tuple[bool, ...]:
    """Return on which side of both margins each limit is."""
    return tuple(end > at for end in (limits.low, limits.high) for at in (-margin, margin))


def _compare(
    difference: NDArray[np.float64],
    clusters: Clusters,
    index: int,
    decision: Mapping[str, Any],
    method: str,
    levels: Sequence[float],
    null: float | None = 0.0,
) -> list[Comparison]:
    """Return one comparison per level. null: from `memory_charge.nearest_null`."""
    named_clusters = None if clusters is None else tuple(clusters)
    differences = difference.shape, difference.tobytes(), named_clusters
    comparisons = _compare_once(differences, index, draws_and_seed(decision), method, tuple(levels), null or 0.0)
    return comparisons if null is not None else [comparison._replace(p=1.0) for comparison in comparisons]


@lru_cache(maxsize=512)  # a judgement of other lanes changes few contrasts: `protocol.recompute.turning_lanes`
def _compare_once(
    differences: tuple[tuple[int, ...], bytes, tuple[str, ...] | None],
    index: int,
    draws_seed: tuple[int, int],
    method: str,
    levels: tuple[float, ...],
    null: float,
) -> list[Comparison]:
    (shape, values, clusters), (draws, seed) = differences, draws_seed

    def rng() -> np.random.Generator:
        return np.random.default_rng([seed, index])

    difference = np.frombuffer(values).reshape(shape)
    return resampled_units.compare_at_levels(method, difference, clusters, levels, draws=draws, rng=rng, null=null)


def _contrast_row(member: PairingEstimate, contrast: Contrast | None, holm: float, alpha: float) -> dict[str, Any]:
    pairing, estimate = member.pairing, member.estimate
    row: dict[str, Any] = {
        "model": pairing.model,
        "task": pairing.task,
        "budget": pairing.budget,
        "subject": pairing.subject,
        "against": pairing.against,
        "n": len(pairing.subject_correct),
        **_cluster_counts(pairing.clusters),
        **({"scored": True} if pairing.has_scores else {}),
        "seeds": pairing.subject_correct.shape[1],
        "gains": int((pairing.subject_correct > pairing.comparator_correct).sum()),
        "losses": int((pairing.subject_correct < pairing.comparator_correct).sum()),
    }
    if pairing.full:
        row["saves"] = estimate is not None and estimate.memory.match.is_matched
    if estimate is None or contrast is None:
        return row | dict.fromkeys(ESTIMATE_FIELDS) | {"better": False, "worse": False, "matched": False}
    nominal, simultaneous, margins = estimate.nominal, estimate.simultaneous, estimate.margins
    cache = estimate.memory.match
    values = [
        *nominal[:3],
        simultaneous.low,
        simultaneous.high,
        nominal.p,
        *(estimate.reported_p.get(method, np.nan) for method in REPORTED_METHODS),
        holm,
        cache.ratio,
        cache.worst,
    ]
    about = {} if margins is None else dict(zip(MARGIN_FIELDS, map(format_decimal, margins[1:]), strict=True))
    row |= dict(zip(ESTIMATE_FIELDS, map(format_decimal, values), strict=True)) | about
    return row | {
        "better": is_better(contrast, alpha),
        "worse": is_worse(contrast, alpha),
        "matched": cache.is_matched,
    }


def _cluster_counts(clusters: Clusters) -> dict[str, int]:
    """Return the number of clusters and, if sizes are uneven, the effective number."""
    if clusters is None:
        return {}
    cluster_count, weight = len(set(clusters)), effective_clusters(clusters)
    return {"clusters": cluster_count} | ({"effective_clusters": weight} if weight < cluster_count else {})


ESTIMATE_FIELDS = (
    "difference",
    "low",
    "high",
    "low_simultaneous",
    "high_simultaneous",
    "p",
    "p_bootstrap",
    "p_t",
    "p_sign_flip",
    "p_holm",
    "cache_ratio",
    "cache_worst",
)
# Fields that decide, or are compared with what decides: they follow the lanes without a grade.
LIMIT_FIELDS = ("low_simultaneous", "high_simultaneous", "low_margin", "high_margin")
P_FIELDS = ("p", "p_decisive", "p_bootstrap", "p_t", "p_sign_flip", "p_holm", "p_adjusted", "p_worse", "p_better")
MARGIN_FIELDS = ("low_margin", "high_margin", "p_worse", "p_better")  # limits with coverage 1 - 2 alpha / m
