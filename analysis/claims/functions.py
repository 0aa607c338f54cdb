"""The functions of checkable forms: arithmetic of printed numbers, statistics, and registered rules."""

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from analysis.claims import printed_p, proportions, quantity, several
from analysis.claims.granularity import counts
from analysis.claims.quantity import Answer, Quantity, computed
from analysis.claims.rounding import Range
from analysis.rules import branch
from analysis.selection import choose
from analysis.stats import interval

__all__ = ["FUNCTIONS", "INFERENTIAL", "LOGIC"]

INFERENTIAL = frozenset({"apart", "corrected", "correlated", "gap", "lucky", "paired", "passing", "unpaired"})
LOGIC = frozenset({"all", "any", "unprinted"})  # their answers have the level of their arguments
STEPS = 10_000  # a rate that takes longer counts as no decay


def _sum(values: list[Quantity]) -> Quantity:
    total = computed(0)
    for value in values:
        total = quantity.combine("+", total, value)
    return total


def _mean(values: list[Quantity]) -> Quantity:
    return quantity.combine("/", _sum(values), computed(len(values)))


def _largest(*values: Any) -> Quantity:
    return max(_flat(values), key=lambda each: each.middle)


def _smallest(*values: Any) -> Quantity:
    return min(_flat(values), key=lambda each: each.middle)


def _flat(values: tuple[Any, ...]) -> list[Quantity]:
    found: list[Quantity] = values[0] if len(values) == 1 and isinstance(values[0], list) else list(values)
    if not found:
        raise ValueError("min and max: none of these cells is printed")
    return found


def _count(answers: list[Answer]) -> Quantity:
    sure = sum(answer.truth is True for answer in answers)
    most = sure + sum(answer.truth is None for answer in answers)
    return computed(sure, most, f"{computed(sure, most).text} of {len(answers)}")


def _distinct(values: list[Any]) -> Quantity:
    number = len({each.text if isinstance(each, Quantity) else each for each in values})
    return computed(number, name=f"{number} distinct")


def _through(function: Callable[[float], float]) -> Callable[[Quantity], Quantity]:
    """Lift an increasing function of a number to quantities."""

    def applied(value: Quantity) -> Quantity:
        printed, counted = (
            Range(Fraction(function(float(ends.low))), Fraction(function(float(ends.high))))
            for ends in (value.printed, value.counted)
        )
        return Quantity(printed, counted)

    return applied


def _both(first: Quantity, second: Quantity) -> tuple[tuple[int, int], tuple[int, int]]:
    if first.answers is None or second.answers is None:
        raise ValueError(f"{first.text} and {second.text}: not both are counts of known answers")
    return first.answers, second.answers


def _paired(first: Quantity, second: Quantity) -> Quantity:
    (one, of), (two, other) = _both(first, second)
    if of != other or not (first.paired and second.paired):
        raise ValueError(
            f"{first.text} and {second.text}: McNemar's test needs one answer to each same problem"
        )
    p = proportions.paired_bounds(one, two, of)
    shown = f"{float(p.low):.2g}" + (f" to {float(p.high):.2g}" if p.low < p.high else "")
    return computed(p.low, p.high, f"McNemar p ({one} and {two} of {of}) {shown}")


def _corrected(p: Quantity, comparisons: Quantity) -> Quantity:
    """Return Bonferroni's p, which decides one member of a family by itself."""
    m = comparisons.middle
    low, high = (min(Fraction(1), m * end) for end in p.counted)
    shown = f"{float(low):.2g}" + (f" to {float(high):.2g}" if low < high else "")
    return computed(low, high, f"{p.text}, {comparisons.text} times {shown}")


def _unpaired(first: Quantity, second: Quantity) -> Quantity:
    (one, of), (two, other) = _both(first, second)
    p = proportions.boschloo(one, of, two, other)
    return computed(p, name=f"Boschloo p ({one} of {of}, {two} of {other}) {p:.2g}")


def _gap(first: Quantity, second: Quantity) -> Quantity:
    (one, of), (two, other) = _both(first, second)
    low, high = interval.newcombe(one, of, two, other)
    return computed(low, high, f"gap {first.text} - {second.text}, 95 %: {low:+.3f} to {high:+.3f}")


def _correlated(correlation: Quantity, observations: Quantity) -> Quantity:
    p = printed_p.correlation_p(float(correlation.middle), int(observations.middle))
    return computed(p, name=f"p of correlation {correlation.text}, n {observations.text}: {p:.2g}")


def _apart(first: Quantity, observations: Quantity, second: Quantity, others: Quantity) -> Quantity:
    numbers = float(first.middle), int(observations.middle), float(second.middle), int(others.middle)
    p = printed_p.correlations_apart_p(*numbers)
    told = f"{first.text} (n {observations.text}) and {second.text} (n {others.text})"
    return computed(p, name=f"p that correlations {told} are equal: {p:.2g}")


def _agree(effect: Quantity, low: Quantity, high: Quantity, p: Quantity) -> Answer:
    found = printed_p.agreement(effect.printed, low.printed, high.printed, p.printed)
    implied = f"{effect.text} [{low.text}, {high.text}] gives p {found.low:.2g} to {found.high:.2g}"
    return Answer(found.decision and found.size, (f"{implied}; printed {p.text}",))


def _passing(method: str, family: list[Quantity]) -> Quantity:
    low, high = [float(p.counted.low) for p in family], [float(p.counted.high) for p in family]
    fewest, most = several.passing(high, method), several.passing(low, method)
    return computed(fewest, most, f"{computed(fewest, most).text} of {len(family)} pass {method}")


def _lucky(candidates: Quantity, first: Quantity, second: Quantity) -> Quantity:
    (right, of), (other, other_of) = _both(first, second)
    found = several.best_of(int(candidates.middle), right, of, Fraction(other, other_of))
    lucky = f"the best of {candidates.text} no better than {second.text} reaches {first.text}"
    return computed(found.chance, name=f"chance {found.chance:.2g} that {lucky}")


def _answerable(value: Quantity, answers: Quantity) -> Answer:
    n = int(answers.middle)
    share = Range(value.printed.low / value.scale, value.printed.high / value.scale)
    found = counts(share, n)
    return Answer(
        bool(found),
        (f"{value.text} from {n}: " + (f"{found[0]} is possible" if found else "no count gives it"),),
    )


def _halving(start: Quantity, rate: Callable[[Quantity], Quantity]) -> Quantity:
    """Count the steps until a value that shrinks by its own rate is halved, by a loop over the printed
    digits.
    """
    value = first = float(start.middle)
    for step in range(STEPS):
        if value <= first / 2:
            return computed(step, name=f"{step} steps to half of {start.text}")
        value -= float(rate(computed(value)).middle) * value
    raise ValueError(f"{start.text}: more than half of it is left after {STEPS} steps")


def _branch(cells: list[Any]) -> str:
    return branch.letter([branch.Cell(role, d.middle, float(p.middle)) for role, d, p in cells])


def _choose(differences: list[list[Quantity]], tolerance: Quantity) -> Quantity:
    chosen = choose([[each.middle for each in row] for row in differences], tolerance.middle)
    return computed(chosen.winner, name=f"place {chosen.winner}")


FUNCTIONS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "abs": quantity.absolute,
        "agree": _agree,
        "all": quantity.every,
        "answerable": _answerable,
        "any": quantity.some,
        "apart": _apart,
        "branch": _branch,
        "choose": _choose,
        "corrected": _corrected,
        "correlated": _correlated,
        "count": _count,
        "distinct": _distinct,
        "exp": _through(math.exp),
        "gap": _gap,
        "halving": _halving,
        "len": lambda values: computed(len(values), name=f"{len(values)} entries"),
        "log": _through(math.log),
        "lucky": _lucky,
        "max": _largest,
        "mean": _mean,
        "min": _smallest,
        "paired": _paired,
        "passing": _passing,
        "sqrt": _through(math.sqrt),
        "sum": _sum,
        "unpaired": _unpaired,
        "unprinted": lambda what: Answer(None, (f"not printed: {what}",)),
    }
)
