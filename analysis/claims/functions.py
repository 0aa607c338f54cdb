"""The functions of checkable forms: arithmetic of printed numbers, statistics, and registered rules."""

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from analysis.claims import printed_tests, quantity
from analysis.claims.quantity import Answer, ImpossibleCell, Quantity, computed
from analysis.claims.rounding import Range, counts
from analysis.rules import branch
from analysis.selection import choose
from analysis.stats import interval

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
    return max(_flatten(values), key=lambda value: value.middle)


def _smallest(*values: Any) -> Quantity:
    return min(_flatten(values), key=lambda value: value.middle)


def _flatten(values: tuple[Any, ...]) -> list[Quantity]:
    numbers: list[Quantity] = values[0] if len(values) == 1 and isinstance(values[0], list) else list(values)
    if not numbers:
        raise ValueError("min and max: the paper prints none of these cells")
    return numbers


def _count_true(answers: list[Answer]) -> Quantity:
    certain = sum(answer.truth is True for answer in answers)
    most = certain + sum(answer.truth is None for answer in answers)
    return computed(certain, most, f"{computed(certain, most).text} of {len(answers)}")


def _count_distinct(values: list[Any]) -> Quantity:
    number = len({value.text if isinstance(value, Quantity) else value for value in values})
    return computed(number, name=f"{number} distinct")


def _lift(function: Callable[[float], float]) -> Callable[[Quantity], Quantity]:
    """Lift an increasing function of a number to quantities."""

    def lifted(value: Quantity) -> Quantity:
        printed, counted = (
            Range(Fraction(function(float(ends.low))), Fraction(function(float(ends.high))))
            for ends in (value.printed, value.counted)
        )
        return Quantity(printed, counted)

    return lifted


def _exact_counts(first: Quantity, second: Quantity) -> tuple[tuple[int, int], tuple[int, int]]:
    if impossible := "; ".join(filter(None, (first.impossible, second.impossible))):
        raise ImpossibleCell(impossible)
    if first.answers is None or second.answers is None:
        raise ValueError(f"{first.text} and {second.text}: both must be counts of a known number of answers")
    return first.answers, second.answers


def _paired(first: Quantity, second: Quantity) -> Quantity:
    (first_right, first_total), (second_right, second_total) = _exact_counts(first, second)
    if first_total != second_total or not (first.paired and second.paired):
        raise ValueError(
            f"{first.text} and {second.text}: McNemar's test needs one answer to each problem, for the same problems"
        )
    p = printed_tests.paired_bounds(first_right, second_right, first_total)
    p_text = f"{float(p.low):.2g}" + (f" to {float(p.high):.2g}" if p.low < p.high else "")
    return computed(p.low, p.high, f"McNemar p ({first_right} and {second_right} of {first_total}) {p_text}")


def _corrected(p: Quantity, comparisons: Quantity) -> Quantity:
    """Return Bonferroni's p, which decides one member of a family by itself."""
    m = comparisons.middle
    low, high = (min(Fraction(1), m * end) for end in p.counted)
    p_text = f"{float(low):.2g}" + (f" to {float(high):.2g}" if low < high else "")
    return computed(low, high, f"{p.text}, {comparisons.text} times {p_text}")


def _unpaired(first: Quantity, second: Quantity) -> Quantity:
    (first_right, first_total), (second_right, second_total) = _exact_counts(first, second)
    p = printed_tests.boschloo(first_right, first_total, second_right, second_total)
    return computed(p, name=f"Boschloo p ({first_right} of {first_total}, {second_right} of {second_total}) {p:.2g}")


def _gap(first: Quantity, second: Quantity) -> Quantity:
    (first_right, first_total), (second_right, second_total) = _exact_counts(first, second)
    low, high = interval.newcombe(first_right, first_total, second_right, second_total)
    return computed(low, high, f"gap {first.text} - {second.text}, 95 %: {low:+.3f} to {high:+.3f}")


def _correlated(correlation: Quantity, observations: Quantity) -> Quantity:
    p = printed_tests.correlation_p(float(correlation.middle), int(observations.middle))
    return computed(p, name=f"p of correlation {correlation.text}, n {observations.text}: {p:.2g}")


def _apart(first: Quantity, observations: Quantity, second: Quantity, others: Quantity) -> Quantity:
    numbers = float(first.middle), int(observations.middle), float(second.middle), int(others.middle)
    p = printed_tests.correlations_differ_p(*numbers)
    description = f"{first.text} (n {observations.text}) and {second.text} (n {others.text})"
    return computed(p, name=f"p that correlations {description} are equal: {p:.2g}")


def _agree(effect: Quantity, low: Quantity, high: Quantity, p: Quantity) -> Answer:
    agreement = printed_tests.check_agreement(effect.printed, low.printed, high.printed, p.printed)
    implied = f"{effect.text} [{low.text}, {high.text}] implies p from {agreement.low:.2g} to {agreement.high:.2g}"
    return Answer(agreement.decision and agreement.size, (f"{implied}; printed {p.text}",))


def _passing(method: str, family: list[Quantity]) -> Quantity:
    low, high = [float(p.counted.low) for p in family], [float(p.counted.high) for p in family]
    fewest, most = printed_tests.count_passing(high, method), printed_tests.count_passing(low, method)
    return computed(fewest, most, f"{computed(fewest, most).text} of {len(family)} are significant by {method}")


def _lucky(candidates: Quantity, first: Quantity, second: Quantity) -> Quantity:
    (first_right, first_total), (second_right, second_total) = _exact_counts(first, second)
    chance = printed_tests.chance_of_best(int(candidates.middle), first_right, first_total, second_right / second_total)
    description = f"the best of {candidates.text} candidates that are no better than {second.text} reaches {first.text}"
    return computed(chance, name=f"chance {chance:.2g} that {description}")


def _answerable(value: Quantity, answers: Quantity) -> Answer:
    n = int(answers.middle)
    share = Range(value.printed.low / value.scale, value.printed.high / value.scale)
    possible = counts(share, n)
    return Answer(
        bool(possible),
        (f"{value.text} from {n}: " + (f"{possible[0]} is possible" if possible else "no count gives this value"),),
    )


def _halving(start: Quantity, rate: Callable[[Quantity], Quantity]) -> Quantity:
    """Count the steps until a value that shrinks by its own rate is halved, by a loop over the printed digits."""
    value = first = float(start.middle)
    for step in range(STEPS):
        if value <= first / 2:
            return computed(step, name=f"{step} steps until {start.text} is halved")
        value -= float(rate(computed(value)).middle) * value
    raise ValueError(f"{start.text}: after {STEPS} steps it is not yet halved")


def _branch(cells: list[Any]) -> str:
    return branch.branch_letter([branch.RoleCell(role, d.middle, float(p.middle)) for role, d, p in cells])


def _choose(differences: list[list[Quantity]], tolerance: Quantity) -> Quantity:
    chosen = choose([[difference.middle for difference in row] for row in differences], tolerance.middle)
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
        "count": _count_true,
        "distinct": _count_distinct,
        "exp": _lift(math.exp),
        "gap": _gap,
        "halving": _halving,
        "len": lambda values: computed(len(values), name=f"{len(values)} entries"),
        "log": _lift(math.log),
        "lucky": _lucky,
        "max": _largest,
        "mean": _mean,
        "min": _smallest,
        "paired": _paired,
        "passing": _passing,
        "sqrt": _lift(math.sqrt),
        "sum": _sum,
        "unpaired": _unpaired,
        "unprinted": lambda what: Answer(None, (f"not printed: {what}",)),
    }
)
