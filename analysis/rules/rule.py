"""The interface of a rule: it maps the contrasts of a family to a verdict, and declares fields and texts.

A contrast whose arms did not use the same measured memory is not evidence about the policies: it is never won
or lost, and no rule confirms a family that has one. Against the full cache memory is unequal on purpose; a
subject that uses no less memory evicted nothing, and its contrast is no evidence either. Nor is a contrast
below the floor (`analysis.judgement.floor`): it is left out of all that a rule counts, and what a rule asks of
every contrast is not shown there. The error rates of each rule are simulated in `benchmarks/validity.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from analysis.rules.self_test_cases import Case, PlannedContrast, PlannedFamily
from analysis.stats.comparison import Margins
from protocol.formats.vocabulary import BYTES_OF, FULL, OF_FULL

AS_COMPUTED = ("policies.state.Verbatim()", "protocol.presses.pressed.AsThePress()")
"""The states, as named in a lock, that store slots as the model computed them."""
UNITS: Mapping[str, int] = MappingProxyType({"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30})
"""Units of a budget in bytes, which follow its number and a space."""

Decision: TypeAlias = Mapping[str, Any]  # the registered decision table: decimals are text


class Contrast(NamedTuple):
    """Subject minus comparator in one (model, task, budget), by the registered method.

    Signs and ties are decided by `net`, which is exact, and never by `delta`, which is a rounded mean.
    """

    model: str
    task: str
    budget: str  # the subject's
    subject: str
    against: str
    delta: float
    high: float  # upper end of the simultaneous interval
    p: float  # of this contrast alone
    adjusted: float  # p adjusted for the family: min(1, m p), or that of max-t
    # Memory is fair: equal in both arms, or below that of the full cache.
    matched: bool
    # Lanes that only the subject solves minus those that only the comparator solves; for scores, the sum of
    # the differences.
    net: int | Fraction
    lanes: int  # problems x seeds
    margins: Margins | None = None  # at alpha / m, if a margin is registered
    memory: float = 1.0  # measured memory of the subject over that of the comparator
    charge: float = 0.0  # accuracy points that excess memory may explain; below 0 for a shortfall
    uncharged_p: float | None = None  # p of no difference, without the memory charge; None if equal to p
    informative: bool = True  # above the floor: see `analysis.judgement.floor`
    repeated: bool = False  # another contrast before it is the same

    @property
    def counts(self) -> bool:
        """Whether a rule that counts contrasts counts this one."""
        return self.informative and not self.repeated

    @property
    def is_evidence(self) -> bool:
        """Whether the contrast says anything about the policies."""
        return self.matched and self.informative


class Field(NamedTuple):
    """A field of the decision that a rule requires. Other rules refuse it."""

    name: str
    kind: str  # "whole" (an integer), "decimal" (with a point), "model" or "arms" (registered names)
    meaning: str
    example: Any
    low: int | Decimal = 0  # smallest and largest number; unused for a model
    high: int | Decimal = 0
    without: str | None = None  # the meaning of a missing field; None if it is required


class Refusal(NamedTuple):
    """Why a decision cannot be registered."""

    field: str
    message: str  # with the fix, in one clause


class PartialNull(NamedTuple):
    """A family of which some contrasts are truly won. wrong: the verdicts that are wrong there."""

    text: str
    won: frozenset[int]  # indices of contrasts
    wrong: tuple[str, ...]


class RuleText(NamedTuple):
    """Functions that describe a rule. checks: of a lock; judged: a judgement."""

    hypothesis: Callable[[Decision, Mapping[str, Any]], str]  # the registered hypothesis, one sentence
    criteria: Callable[[Decision, Mapping[str, Any]], list[str]]  # when the verdict is CONFIRMED or REFUTED
    proves: Callable[[Mapping[str, Any]], list[str]]  # what a CONFIRMED or REFUTED judgement proves
    # The answer to the registered question, after "Yes, as registered:" and the like, without a full stop.
    # Takes the judgement, the verdict of the rule alone, and the locked decision (empty if unknown).
    answer: Callable[[Mapping[str, Any], str, Decision], str]
    meaning: str  # the meaning of the three verdicts, without numbers
    line: Callable[[Mapping[str, Any]], str]  # one short line about a judgement, with its numbers
    limits: Callable[[Mapping[str, Any]], list[str]] = lambda judged: []  # what CONFIRMED does not prove
    letters: Callable[[Mapping[str, Any]], tuple[str, ...]] = lambda judged: ()  # finer than the verdict
    unmatched: str = ", where none can be won or lost"  # the consequence for contrasts of unmatched memory


def fewest_problems(planned: Sequence[PlannedContrast]) -> int:
    """Return the index of a contrast with the fewest problems."""
    return min(range(len(planned)), key=lambda index: planned[index].problems)


def _worse_rows(rows: Sequence[Mapping[str, Any]], decision: Decision) -> list[Mapping[str, Any]]:
    return [row for row in rows if row["worse"]]


class Rule(NamedTuple):
    fields: tuple[Field, ...]
    refusal: Callable[[Decision, int], Refusal | None]  # takes a decision and the size of its family
    verdict: Callable[[Sequence[Contrast], Decision], str]
    cases: Callable[[PlannedFamily], dict[str, Case]]  # the first three cases cover the three verdicts
    text: RuleText
    # Further fields of the judgement of a complete study, by name; takes the number of the rules of judging too.
    report: Callable[[Sequence[Contrast], Decision, int], dict[str, Any]] = lambda contrasts, decision, judging: {}
    full: str = "refused"  # whether the full cache may be the comparator: "refused", "allowed" or "asked"
    has_ordered_budgets: bool = False  # requires two or more budgets of one kind
    # Indices of contrasts that make CONFIRMED wrong if the subject is worse by the margin in them.
    lossy_indices: Callable[[Sequence[PlannedContrast]], list[int]] = lambda planned: [fewest_problems(planned)]
    # The smallest budget of each arm that the rule sought, of a judgement; None for an arm without one.
    smallest_budgets: Callable[[Mapping[str, Any]], dict[str, str | None]] = lambda judged: {}
    has_two_sided_margin: bool = False  # whether a registered margin applies above zero, too
    has_cell_levels: bool = False  # tests single contrasts at alpha itself and not at the corrected level
    aliases: Mapping[str, str] = MappingProxyType({})  # other names of the rule -> its name, or a hint
    # The rows of a REFUTED judgement that refute it each for itself; none if their number does.
    refuting_rows: Callable[[Sequence[Mapping[str, Any]], Decision], list[Mapping[str, Any]]] = _worse_rows
    # The verdict by earlier rules of judging, by their number, where it differs.
    earlier_verdicts: Mapping[int, Callable[[Sequence[Contrast], Decision], str]] = MappingProxyType({})
    # Nulls of which a part is false, besides the one where nothing differs: where the rule may err more often.
    partial_nulls: Callable[[Sequence[PlannedContrast], Decision], list[PartialNull]] = lambda planned, decision: []

    def decide(self, contrasts: Sequence[Contrast], decision: Decision, judging: int) -> str:
        """Return the verdict. judging: the number of the rules of judging of the study."""
        return self.earlier_verdicts.get(judging, self.verdict)(contrasts, decision)

    @property
    def source(self) -> str:
        """The path of the source file whose digest a lock records."""
        return self.verdict.__module__.replace(".", "/") + ".py"


def budget_amount(budget: str) -> Decimal:
    """Return the size of a registered budget, given as text; it orders budgets of one kind."""
    number, _, unit = budget.removesuffix(OF_FULL).removeprefix(BYTES_OF).partition(" ")
    return Decimal(number) * UNITS.get(unit, 1)


def is_against_full(decision: Decision) -> bool:
    """Return whether the only comparator is the full cache; memory is then unequal on purpose."""
    return list(decision["against"]) == [FULL]


def measures_memory(decision: Decision) -> bool:
    """Return whether the memory of arms is measured: not where another harness runs the study."""
    return "cache_tolerance" in decision


def memory_condition(decision: Decision) -> str:
    """Return under which condition on memory a hypothesis is about accuracy."""
    if not measures_memory(decision):
        return "at any memory, which is not measured"
    return "with less memory than the full cache" if is_against_full(decision) else "at equal measured memory"


def arm_pairs(decision: Decision) -> list[tuple[str, str]]:
    """Return the (subject, comparator) pairs that the rule compares in each model, task and budget."""
    arms = [decision["subject"], *(decision.get("others") or ())]
    return [(arm, other) for arm in arms for other in decision["against"]]


def lead_share(decision: Decision) -> Fraction:
    """Return the registered or usual share of the full cache's lead over chance that a margin may be."""
    return Fraction(decision["lead_share"]) if "lead_share" in decision else Fraction(1, 3)


def require_contrasts(contrasts: Sequence[Contrast]) -> Sequence[Contrast]:
    """Return the contrasts. Raises ValueError for an empty family, in which every contrast would pass."""
    if not contrasts:
        raise ValueError("contrasts: an empty family has no verdict; pass at least one contrast")
    return contrasts


def charged_gain(contrast: Contrast) -> Fraction:
    """Return the exact mean difference; a win is reduced by what excess memory may have bought. A loss is not
    changed: that less memory may have caused it refutes no policy, and is no gain either.
    """
    mean_difference = Fraction(contrast.net, contrast.lanes)
    if contrast.charge > 0 and mean_difference > 0:
        return max(Fraction(0), mean_difference - Fraction(min(contrast.charge, 1.0)))
    return mean_difference


def harm_p(contrast: Contrast) -> float:
    """Return the p by which a loss may prevent CONFIRMED. A loss is not charged for memory, since a subject
    that was given less memory would otherwise be called harmless.
    """
    return contrast.p if contrast.uncharged_p is None or contrast.net >= 0 else contrast.uncharged_p


def is_better(contrast: Contrast, alpha: float) -> bool:
    return contrast.matched and contrast.counts and contrast.net > 0 and contrast.adjusted <= alpha


def is_worse(contrast: Contrast, alpha: float) -> bool:
    return contrast.matched and contrast.counts and contrast.net < 0 and contrast.adjusted <= alpha
