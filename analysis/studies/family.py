"""The contrasts of a family by the registered method, for the rule and for the printed judgement."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from analysis.output.printed import decimal
from analysis.rules.rule import Contrast, better, worse
from analysis.stats import equal_memory, isocache, multiplicity, resampled_units
from analysis.stats.comparison import Comparison, Margins
from analysis.stats.methods import METHODS, WITHOUT_COUNTS, draws, effective
from analysis.stats.resampled_units import Clusters
from analysis.studies import contrasts, memory
from analysis.studies.contrasts import Pairing
from analysis.studies.memory import Arms, Held
from analysis.studies.study_files import RecordError, Study

__all__ = ["Compared", "compared"]

LEVEL = 0.95  # coverage of the nominal interval
BESIDE = ("bootstrap", "t", "sign-flip")  # methods whose p is always reported


class Estimate(NamedTuple):
    """The estimates for one pairing. Every p tests a difference beyond what memory may explain: see
    `memory_charge`.
    """

    nominal: Comparison  # by the registered method, at 95 %
    measured: Comparison  # by the registered method, at the Bonferroni level or by max-t
    beside: dict[str, float]  # p by method; without methods that draw if no draws are registered
    memory: Held
    margins: Margins | None  # at the Bonferroni level, if a margin is registered
    plain: float  # p of no difference by the registered method, without the memory charge
    moved: bool  # whether the memory charge moved a limit across a margin

    @property
    def simultaneous(self) -> Comparison:
        """The simultaneous comparison at equal memory."""
        return equal_memory.widened(self.measured, self.memory.points)

    @property
    def decided(self) -> bool:
        """Whether only the memory charge prevents a win, a loss or staying within a margin."""
        wide = self.simultaneous
        alone = self.measured.low > 0 or self.measured.high < 0
        return self.moved or (alone and wide.low <= 0 <= wide.high)


class Estimated(NamedTuple):
    """A pairing with its estimate. adjusted: p adjusted for the family, 1 without an estimate."""

    pairing: Pairing
    estimate: Estimate | None  # None for fewer than two measured problems
    adjusted: float

    def contrast(self) -> Contrast | None:
        """Return the contrast for the rule."""
        if self.estimate is None:
            return None
        estimate, pairing = self.estimate, self.pairing
        matched = estimate.memory.matched
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
            matched=matched.matched,
            net=pairing.net,
            lanes=pairing.own.size,
            margins=estimate.margins,
            memory=matched.ratio,
            charge=estimate.memory.points,
            plain=estimate.plain,
        )


class Compared(NamedTuple):
    level: float  # level of one contrast
    contrasts: list[Contrast | None]  # None without an estimate
    rows: list[dict[str, Any]]  # rows of the judgement


def compared(
    study: Study, sides: Sequence[tuple[str, str]], alpha: float, *, first: int = 0, corrected: bool = True
) -> Compared:
    """Compare every pair of arms in every model, task and budget.

    first: index of the first pairing among all of the study; the index seeds the draws, also of max-t.

    Raises ValueError without arm pairs: an empty family would satisfy any condition on all contrasts.
    """
    if not sides:
        raise ValueError("sides: an empty family has no contrast; name at least one comparator")
    decision = study.lock["protocol"]["content"]["decision"]
    pairings = contrasts.pairings(study, sides)
    _refuse_counts(pairings, decision["method"])
    level = multiplicity.corrected(alpha, len(pairings) if corrected else 1)
    arms, items = study.columns_by_arm(), study.lock["items"]
    estimates = [
        _estimate(pairing, first + index, decision, level, _held(pairing, arms, decision, items))
        for index, pairing in enumerate(pairings)
    ]
    p = [1.0 if estimate is None else estimate.nominal.p for estimate in estimates]
    adjusted = multiplicity.adjust(p)
    bonferroni, holm = (adjusted.bonferroni, adjusted.holm) if corrected else (p, p)
    family = list(map(Estimated, pairings, estimates, bonferroni))
    together = METHODS[decision["method"]].family
    if together and corrected:
        times, seed = draws(decision)
        family = _together(family, np.random.default_rng([seed, first]), times, alpha)
    seen = [one.contrast() for one in family]
    rows = [_printed(*each, alpha) for each in zip(family, seen, holm, strict=True)]
    if together:
        rows = [row | {"p_adjusted": decimal(one.adjusted)} for row, one in zip(rows, family, strict=True)]
    for index, (row, one) in enumerate(zip(rows, family, strict=True)):
        if one.estimate is not None:
            sizes = memory.slot_bytes(study.lock, one.pairing)
            senses = memory.ratios(one.pairing, arms, items[one.pairing.task]["confirm"], sizes)
            by = decision.get("memory", "slots")
            row["memory"] = memory.printed(one.estimate.memory, one.estimate.decided, senses, by)
        if "memory" in decision and not one.pairing.full:
            row["isocache"] = _isocache(study, one.pairing, one.estimate, first + index)
    return Compared(level, seen, rows)


def _refuse_counts(pairings: Sequence[Pairing], method: str) -> None:
    """Raise RecordError if the method cannot take scores or clusters; registering refuses the same."""
    other = next((one for one in pairings if not one.counts), None)
    if other is not None and METHODS[method].counts:
        what = "scores" if other.scored else "clusters"
        raise RecordError(
            f"decision.method: {method} counts right and wrong answers, and {other.task} has {what}; "
            f"what takes them: {', '.join(WITHOUT_COUNTS)}"
        )


def _held(
    pairing: Pairing, arms: Arms, decision: Mapping[str, Any], items: Mapping[str, Mapping[str, list[str]]]
) -> Held | None:
    """Return the memory match; None for fewer than two problems with all lanes measured, or one cluster."""
    if len(pairing.memory()[0]) < 2 or pairing.units < 2:
        return None
    return memory.held(pairing, arms, decision, items[pairing.task]["confirm"])


def _together(
    family: Sequence[Estimated], rng: np.random.Generator, times: int, alpha: float
) -> list[Estimated]:
    """Return the family with the simultaneous intervals and p of max-t.

    Contrasts of a task with the same problems are flipped together. All others are treated as independent,
    which is conservative (Sidak 1967).
    """
    groups: dict[tuple[str, ...], list[int]] = {}
    for index, one in enumerate(family):
        if one.estimate is not None:
            groups.setdefault((one.pairing.task, *one.pairing.problems), []).append(index)
    if not groups:
        return list(family)
    nulls = [[_null(family[index]) for index in group] for group in groups.values()]
    asked = [
        [
            (family[index].pairing.difference, family[index].pairing.clusters, null or 0.0)
            for index, null in zip(*each, strict=True)
        ]
        for each in zip(groups.values(), nulls, strict=True)
    ]
    comparisons = resampled_units.simultaneous(asked, level=1 - alpha, draws=times, rng=rng)
    comparisons = [
        [one if null is not None else one._replace(p=1.0) for one, null in zip(*each, strict=True)]
        for each in zip(comparisons, nulls, strict=True)
    ]
    indices = itertools.chain(*groups.values())
    of = dict(zip(indices, itertools.chain(*comparisons), strict=True))
    return [
        one
        if one.estimate is None
        else one._replace(estimate=one.estimate._replace(measured=of[index]), adjusted=of[index].p)
        for index, one in enumerate(family)
    ]


def _null(one: Estimated) -> float | None:
    """Return the null mean difference; None if memory may explain the observed one."""
    assert one.estimate is not None
    return equal_memory.null(one.estimate.nominal.mean, one.estimate.memory.points)


def _isocache(study: Study, pairing: Pairing, estimate: Estimate | None, index: int) -> dict[str, Any]:
    """Return memory per problem and, for arms that do not match, the difference at the subject's memory.

    It draws the stream of its contrast and decides nothing. Differences at interpolated memory are not
    integers, so that Student's t replaces the exact methods.
    """
    content = study.lock["protocol"]["content"]
    decision, budgets = content["decision"], content["budgets"]
    if estimate is None:
        return {"ratio": None, "within": None, "interpolated": None, "why": "too few"}
    each = isocache.per_problem(*pairing.memory(), tolerance=float(decision["cache_tolerance"]))
    row = {"ratio": decimal(each.ratio), "within": decimal(each.within), "interpolated": None}
    if estimate.memory.matched.matched:
        return row | {"why": "matched"}
    problems = study.lock["items"][pairing.task]["confirm"]
    (own, *references), whole = contrasts.references(
        pairing, study.columns_by_arm(), budgets, problems, decision["memory"]
    )
    clusters = contrasts.clusters_of(study.lock, pairing.task, whole)
    if resampled_units.number(clusters, len(whole)) < 2:
        return row | {"why": "too few"}
    at = isocache.interpolated(own.correct, own.slots, references)
    if at is None:
        return row | {"why": "outside"}
    method = decision["method"] if METHODS[decision["method"]].draws else "t"
    (comparison,) = _compare(at.difference[:, None], clusters, index, decision, method, [LEVEL])
    values = dict(zip(("difference", "low", "high", "p"), map(decimal, comparison), strict=True))
    between = [budgets[at.below], budgets[at.above]]
    return row | {
        "interpolated": values | {"weight": decimal(at.weight), "between": between},
        "why": "interpolated",
    }


def _estimate(
    pairing: Pairing, index: int, decision: Mapping[str, Any], corrected: float, held: Held | None
) -> Estimate | None:
    """Estimate one pairing. Every method draws the stream of (decision.seed, index). For max-t, a method for
    families, a single contrast uses Student's t.
    """
    if held is None:
        return None
    difference, method, margins, moved = pairing.difference, decision["method"], None, False
    of = difference, pairing.clusters
    beside = [name for name in BESIDE if METHODS[method].draws or name == "t"]
    null = equal_memory.null(float(difference.mean()), held.points)
    both = [LEVEL, 1 - corrected]
    own, measured = _compare(*of, index, decision, method, both, null)
    nominal = {
        name: own if name == method else _compare(*of, index, decision, name, [LEVEL], null)[0]
        for name in dict.fromkeys([*beside, method])
    }
    if "margin" in decision:
        margin = float(decision["margin"])
        margins = resampled_units.margins(*of, margin, held.points, alpha=corrected, method=method)
        alone = resampled_units.margins(*of, margin, 0.0, alpha=corrected, method=method)
        moved = _sides(margins, margin) != _sides(alone, margin)
    plain = own if null == 0 else _compare(*of, index, decision, method, [LEVEL])[0]
    return Estimate(
        nominal=own,
        measured=measured,
        beside={name: nominal[name].p for name in beside},
        memory=held,
        margins=margins,
        plain=plain.p,
        moved=moved,
    )


def _sides(limits: Margins, margin: float) -> tuple[bool, ...]:
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
    (times, seed), tested = draws(decision), null or 0.0

    def rng() -> np.random.Generator:
        return np.random.default_rng([seed, index])

    found = resampled_units.compare_at(
        method, difference, clusters, levels, draws=times, rng=rng, null=tested
    )
    return found if null is not None else [each._replace(p=1.0) for each in found]


def _printed(one: Estimated, seen: Contrast | None, holm: float, alpha: float) -> dict[str, Any]:
    pairing, estimate = one.pairing, one.estimate
    row: dict[str, Any] = {
        "model": pairing.model,
        "task": pairing.task,
        "budget": pairing.budget,
        "subject": pairing.subject,
        "against": pairing.against,
        "n": len(pairing.own),
        **_clusters(pairing.clusters),
        **({"scored": True} if pairing.scored else {}),
        "seeds": pairing.own.shape[1],
        "gains": int((pairing.own > pairing.other).sum()),
        "losses": int((pairing.own < pairing.other).sum()),
    }
    if pairing.full:
        row["saves"] = estimate is not None and estimate.memory.matched.matched
    if estimate is None or seen is None:
        return row | dict.fromkeys(ESTIMATED) | {"better": False, "worse": False, "matched": False}
    nominal, simultaneous, margins = estimate.nominal, estimate.simultaneous, estimate.margins
    cache = estimate.memory.matched
    values = [
        *nominal[:3],
        simultaneous.low,
        simultaneous.high,
        nominal.p,
        *(estimate.beside.get(method, np.nan) for method in BESIDE),
        holm,
        cache.ratio,
        cache.worst,
    ]
    about = {} if margins is None else dict(zip(ABOUT_MARGIN, map(decimal, margins[1:]), strict=True))
    return (
        row
        | dict(zip(ESTIMATED, map(decimal, values), strict=True))
        | about
        | {"better": better(seen, alpha), "worse": worse(seen, alpha)}
        | {"matched": cache.matched}
    )


def _clusters(clusters: Clusters) -> dict[str, int]:
    """Return the number of clusters and, if sizes are uneven, the effective number."""
    if clusters is None:
        return {}
    there, weigh = len(set(clusters)), effective(clusters)
    return {"clusters": there} | ({"effective_clusters": weigh} if weigh < there else {})


ESTIMATED = (
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
ABOUT_MARGIN = ("low_margin", "high_margin", "p_worse", "p_better")  # limits with coverage 1 - 2 alpha / m
