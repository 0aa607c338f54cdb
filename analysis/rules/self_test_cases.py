"""Self-test cases of a rule: simulated studies, each with the verdict that the rule has to give."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from analysis.rules.verdicts import INCONCLUSIVE, REFUTED

WON, EVEN, LOST = "what the rule asks for is won", "nothing differs", "every contrast is lost"


class Vacuous(ValueError):
    """A rule that cannot reach some verdict at the planned size, or that reaches one whatever the data."""


class PlannedContrast(NamedTuple):
    """One contrast of the family and its number of problems."""

    model: str
    task: str
    budget: str
    against: str
    problems: int
    subject: str


class Outcome(NamedTuple):
    """The number of problems that only the subject solves, with all its seeds, and that only it fails."""

    gained: int = 0
    lost: int = 0


class EndedLanes(NamedTuple):
    """The first lanes of one arm of a contrast, in problem order, that end without a grade."""

    contrast: int
    subject: bool
    how: str  # "not run", "failed", or "no grade" where the grader failed
    lanes: int = 1


class FailedGate(NamedTuple):
    """A model and task in which the full cache fails the registered gate."""

    model: str
    task: str
    how: str  # "wrong": every lane is wrong; "cut": more lanes are truncated than the gate allows


class Scenario(NamedTuple):
    """The outcome of a simulated study. Contrasts are given by their index in the family."""

    outcomes: Mapping[int, Outcome]  # all other contrasts show no difference
    # Contrasts whose subject exceeds the memory tolerance.
    unmatched: frozenset[int] = frozenset()
    ended: EndedLanes | None = None
    unable: FailedGate | None = None  # the full cache passes all other gates
    fuller: frozenset[int] = frozenset()  # subjects with the largest allowed excess
    guessing: bool = False  # no evicting arm is right on more problems than may be a guess


class Case(NamedTuple):
    scenario: Scenario
    expected: str  # the verdict that the rule has to give


class PlannedFamily(Protocol):
    """The planned contrasts, with outcomes of a requested p at their size."""

    judging: int  # the field of the lock
    decision: Mapping[str, Any]
    seeds: int
    contrasts: list[PlannedContrast]
    alpha: float
    corrected: float  # the level of one contrast

    def model_indices(self, model: str) -> list[int]: ...

    def largest_win(self, index: int) -> Outcome:
        """Return the largest possible win: every problem."""

    def smallest_p(self, index: int) -> float:
        """Return the p of the largest possible win; 1 for too few problems to compare."""

    def win_between(self, index: int, low: float, high: float) -> Outcome | None:
        """Return a win whose p lies clearly between two levels, with as few losses as possible, or None."""

    def equal_answers_p(self, margin: float) -> tuple[int, float]:
        """Return the fewest problems of a contrast, and the p of a margin test if all answers are equal."""


def make_case(verdict: str, outcomes: Mapping[int, Outcome], *unmatched: int) -> Case:
    """Return the case of these outcomes in which the contrasts `unmatched` do not match in memory."""
    return Case(Scenario(outcomes, frozenset(unmatched)), verdict)


def as_loss(win: Outcome) -> Outcome:
    return Outcome(gained=win.lost, lost=win.gained)


def lose_all(family: PlannedFamily, indices: Iterable[int]) -> dict[int, Outcome]:
    return {index: as_loss(family.largest_win(index)) for index in indices}


def standard_cases(family: PlannedFamily) -> dict[str, Case]:
    """Return the cases that all rules that require wins share."""
    return {EVEN: make_case(INCONCLUSIVE, {}), LOST: make_case(REFUTED, lose_all(family, range(len(family.contrasts))))}


def ungraded_cases(family: PlannedFamily, wins: Mapping[int, Outcome], index: int) -> dict[str, Case]:
    """Return cases in which a lane of the subject has no grade in a contrast that is won; `decision.missing`
    says what follows.
    """

    def ended_case(how: str) -> Case:
        return Case(Scenario(wins, ended=EndedLanes(index, True, how)), INCONCLUSIVE)

    cases = {"one lane is not run": ended_case("not run")}
    if family.decision["missing"] == "inconclusive":
        return cases | {"one lane fails": ended_case("failed"), "one lane has no grade": ended_case("no grade")}
    lanes = family.contrasts[index].problems * family.seeds
    no_grades = Scenario({}, ended=EndedLanes(index, True, "no grade", lanes))
    expected = REFUTED if family.judging == 1 else INCONCLUSIVE
    return cases | {"the subject's lanes have no grade": Case(no_grades, expected)}


def cannot_confirm(family: PlannedFamily, indices: Sequence[int], needed: int, level: float) -> Vacuous:
    """Return the refusal of a rule that cannot confirm: even the largest win is not significant."""
    worst = max(indices, key=family.smallest_p)
    p, contrast = family.smallest_p(worst), family.contrasts[worst]
    return Vacuous(
        f"{family.decision['rule']}: cannot give CONFIRMED: {needed} of {len(indices)} contrasts must be "
        f"won, and a win on {family.largest_win(worst).gained} of {contrast.problems} problems of "
        f"{contrast.task}, the largest between arms that do not guess, has p = {p:.6f} at level "
        f"{level:.6f}; plan more problems or fewer contrasts"
    )
