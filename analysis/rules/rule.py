"""What a rule is: from the contrasts of a family to one word, with all that is registered and said of it.

A contrast whose arms did not hold the same measured memory says nothing about the policies: it is never won
and never lost, and while one is in the family no rule confirms. Against the full cache memory is unequal on
purpose; there a subject that holds no less says nothing, since it evicted nothing. How often each rule errs
is simulated in `benchmarks/validity.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from analysis.rules.gates import Family, Gate, PlannedContrast
from analysis.stats.comparison import Margins

__all__ = [
    "BYTES_OF",
    "FULL",
    "OF_FULL",
    "UNITS",
    "Contrast",
    "Decision",
    "Field",
    "Refusal",
    "Rule",
    "Words",
    "against_full",
    "amount",
    "better",
    "fewest",
    "gain",
    "harmed",
    "sides",
    "whole",
    "worse",
]

FULL = "full"  # the arm that never evicts where it is a comparator, and the budget of its cells
OF_FULL = " of full"  # ends a budget that is a share of what the full cache holds on average
AS_COMPUTED = ("policies.state.Verbatim()", "protocol.presses.pressed.AsThePress()")
"""As a lock names the states that store slots as the model computed them."""
BYTES_OF = "bytes of "  # begins a budget that is the bytes of so many slots as computed
UNITS: Mapping[str, int] = MappingProxyType({"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30})
"""Of a budget in bytes, after its number and a space."""

Decision: TypeAlias = Mapping[str, Any]  # the registered decision table: decimals are text


class Contrast(NamedTuple):
    """Subject minus comparator in one (model, task, budget), by the registered method.

    A sign or a tie is decided on `net`, which is exact, and never on `delta`, which is a rounded mean.
    """

    model: str
    task: str
    budget: str  # the subject's
    subject: str
    against: str
    delta: float
    high: float  # upper end of the simultaneous interval
    p: float  # of this contrast alone
    adjusted: float  # p that holds for the whole family: min(1, m p), or that of max-t
    # The memory of both arms is as a fair comparison asks: equal, or below that of the full cache.
    matched: bool
    # Lanes that the subject alone solves, less those that the comparator alone solves; of scores, the sum of
    # their differences.
    net: int | Fraction
    lanes: int  # problems x seeds
    margins: Margins | None = None  # at alpha / m, where a margin is registered
    memory: float = 1.0  # measured memory of the subject over that of the comparator
    charge: float = 0.0  # points that an excess of it may have bought; below 0: a shortfall cost
    plain: float | None = None  # p of no difference, whatever memory may have done; None: as p


class Field(NamedTuple):
    """A field of the decision that a rule asks for. Other rules refuse it."""

    name: str
    kind: str  # "whole" (a whole number), "decimal" (one with a point), "model" or "arms" (registered ones)
    meaning: str
    example: Any
    low: int | Decimal = 0  # the smallest and largest number; of a model nothing
    high: int | Decimal = 0
    without: str | None = None  # what holds where it is left out; None: it must be there


class Refusal(NamedTuple):
    """Why a decision cannot be registered."""

    field: str
    says: str  # with the fix


class Words(NamedTuple):
    """What is said of a rule. checks: those of a lock; judged: a judgement."""

    hypothesis: Callable[[Decision, Mapping[str, Any]], str]  # registered, in a sentence
    criteria: Callable[[Decision, Mapping[str, Any]], list[str]]  # when it says CONFIRMED and REFUTED
    proves: Callable[[Mapping[str, Any]], list[str]]  # of a judgement that is CONFIRMED or REFUTED
    meaning: str  # of the three words, without numbers
    line: Callable[[Mapping[str, Any]], str]  # of a judgement, in a few words with its numbers
    limits: Callable[[Mapping[str, Any]], list[str]] = lambda judged: []  # not proved by a CONFIRMED
    letters: Callable[[Mapping[str, Any]], tuple[str, ...]] = lambda judged: ()  # finer than the verdict


def fewest(planned: Sequence[PlannedContrast]) -> int:
    """The place of a contrast with the fewest problems."""
    return min(range(len(planned)), key=lambda index: planned[index].problems)


class Rule(NamedTuple):
    fields: tuple[Field, ...]
    refusal: Callable[[Decision, int], Refusal | None]  # of a decision and the size of its family
    verdict: Callable[[Sequence[Contrast], Decision], str]
    gates: Callable[[Family], dict[str, Gate]]  # the first three are the three verdicts
    words: Words
    # What a judgement holds of a complete study beside the verdict, by name.
    report: Callable[[Sequence[Contrast], Decision], dict[str, Any]] = lambda contrasts, decision: {}
    full: str = "refused"  # whether the full cache may be the comparator: "refused", "allowed" or "asked"
    ordered: bool = False  # asks for two budgets or more, all of one kind
    # The places of contrasts that make CONFIRMED wrong once the subject is worse there by the margin.
    lossy: Callable[[Sequence[PlannedContrast]], list[int]] = lambda planned: [fewest(planned)]

    @property
    def source(self) -> str:
        """The file whose bytes a lock cites."""
        return self.verdict.__module__.replace(".", "/") + ".py"


def amount(budget: str) -> Decimal:
    """Of a registered budget, as text: what puts those of one kind in order."""
    number, _, unit = budget.removesuffix(OF_FULL).removeprefix(BYTES_OF).partition(" ")
    return Decimal(number) * UNITS.get(unit, 1)


def against_full(decision: Decision) -> bool:
    """Whether the one comparator is the full cache: memory is then unequal on purpose."""
    return list(decision["against"]) == [FULL]


def sides(decision: Decision) -> list[tuple[str, str]]:
    """Every two arms that the rule compares, in each model, task and budget."""
    arms = [decision["subject"], *(decision.get("others") or ())]
    return [(arm, other) for arm in arms for other in decision["against"]]


def whole(contrasts: Sequence[Contrast]) -> Sequence[Contrast]:
    """The same. Raises ValueError for none: what is asked of every contrast would hold of an empty family."""
    if not contrasts:
        raise ValueError("contrasts: an empty family has no verdict; pass at least one contrast")
    return contrasts


def gain(contrast: Contrast) -> Fraction:
    """The mean difference, whole lanes over lanes, of a win without what more memory may have bought. A loss
    counts as it is: that less memory may have caused it refutes no policy, and is no gain either.
    """
    found = Fraction(contrast.net, contrast.lanes)
    if contrast.charge > 0 and found > 0:
        return max(Fraction(0), found - Fraction(min(contrast.charge, 1.0)))
    return found


def harmed(contrast: Contrast) -> float:
    """p of a contrast where it may keep a rule from CONFIRMED: of a loss as it is, since a subject that was
    given less memory where it loses would else be called harmless.
    """
    return contrast.p if contrast.plain is None or contrast.net >= 0 else contrast.plain


def better(contrast: Contrast, alpha: float) -> bool:
    return contrast.matched and contrast.net > 0 and contrast.adjusted <= alpha


def worse(contrast: Contrast, alpha: float) -> bool:
    return contrast.matched and contrast.net < 0 and contrast.adjusted <= alpha
