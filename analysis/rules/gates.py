"""What a rule is tried on before it is locked: made-up studies, and the verdict that is due of each."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from analysis.rules.verdicts import INCONCLUSIVE, REFUTED

__all__ = [
    "EVEN",
    "LOST",
    "WON",
    "Ended",
    "Family",
    "Gate",
    "Outcome",
    "PlannedContrast",
    "Truth",
    "Unable",
    "Vacuous",
    "all_lost",
    "due",
    "lost",
    "ordinary",
    "ungraded",
    "unseen",
]

WON, EVEN, LOST = "what the rule asks for is won", "nothing differs", "every contrast is lost"


class Vacuous(ValueError):
    """A rule that cannot say a verdict at the planned size, or that says one whatever happened."""


class PlannedContrast(NamedTuple):
    """One contrast of the family and its number of problems."""

    model: str
    task: str
    budget: str
    against: str
    problems: int
    subject: str


class Outcome(NamedTuple):
    """In how many problems the subject alone is correct, with all its seeds, and in how many it alone is
    not.
    """

    gained: int = 0
    lost: int = 0


class Ended(NamedTuple):
    """The first lanes of one side of a contrast, problem by problem, end without a grade."""

    contrast: int
    subject: bool
    how: str  # "not run", "failed", or "no grade" where the grader failed
    lanes: int = 1


class Unable(NamedTuple):
    """A model and task where the full cache does not pass the registered gate."""

    model: str
    task: str
    how: str  # "wrong": in every lane; "cut": in more lanes than may be cut


class Truth(NamedTuple):
    """What a made-up study shows. Contrasts are named by their place in the family."""

    outcomes: Mapping[int, Outcome]  # no difference in all others
    # Whose comparator holds more memory than the tolerance allows; of the full cache, whose subject does.
    unmatched: frozenset[int] = frozenset()
    ended: Ended | None = None
    unable: Unable | None = None  # the full cache passes every other gate
    fuller: frozenset[int] = frozenset()  # whose subject holds as much more as the tolerance lets through


class Gate(NamedTuple):
    truth: Truth
    verdict: str  # that is due


class Family(Protocol):
    """The planned contrasts, and the outcomes that have a wanted p at their size."""

    decision: Mapping[str, Any]
    seeds: int
    contrasts: list[PlannedContrast]
    alpha: float
    corrected: float  # alpha of one contrast

    def at(self, model: str) -> list[int]: ...

    def whole(self, index: int) -> Outcome:
        """The largest win there is: every problem."""

    def best(self, index: int) -> float:
        """p of the largest win there is, 1 for too few problems to compare."""

    def between(self, index: int, low: float, high: float) -> Outcome | None:
        """A win whose p lies well between two levels, with as few losses as possible; None where there is no
        such number of problems.
        """

    def equal(self, margin: float) -> tuple[int, float]:
        """The fewest problems of a contrast, and p of a margin where all their answers are equal."""


def due(verdict: str, outcomes: Mapping[int, Outcome], *unmatched: int) -> Gate:
    """The verdict of these outcomes, where the caches of the contrasts `unmatched` do not match."""
    return Gate(Truth(outcomes, frozenset(unmatched)), verdict)


def lost(win: Outcome) -> Outcome:
    return Outcome(gained=win.lost, lost=win.gained)


def all_lost(family: Family, indices: Iterable[int]) -> dict[int, Outcome]:
    return {index: lost(family.whole(index)) for index in indices}


def ordinary(family: Family) -> dict[str, Gate]:
    """Of rules that ask for wins."""
    return {
        EVEN: due(INCONCLUSIVE, {}),
        LOST: due(REFUTED, all_lost(family, range(len(family.contrasts)))),
    }


def ungraded(family: Family, won: Mapping[int, Outcome], index: int) -> dict[str, Gate]:
    """One lane of the subject, in a contrast that is won; what it does is `decision.missing`."""

    def gate(how: str) -> Gate:
        return Gate(Truth(won, ended=Ended(index, True, how)), INCONCLUSIVE)

    gates = {"one lane is not run": gate("not run")}
    if family.decision["missing"] == "inconclusive":
        return gates | {"one lane fails": gate("failed"), "one lane has no grade": gate("no grade")}
    lanes = family.contrasts[index].problems * family.seeds
    nothing = Truth({}, ended=Ended(index, True, "no grade", lanes))
    return gates | {"the subject's lanes have no grade": Gate(nothing, REFUTED)}


def unseen(family: Family, indices: Sequence[int], needed: int, level: float) -> Vacuous:
    """The refusal of a rule that cannot confirm: the largest win is not seen."""
    worst = max(indices, key=family.best)
    p, contrast = family.best(worst), family.contrasts[worst]
    return Vacuous(
        f"{family.decision['rule']}: cannot say CONFIRMED: {needed} of {len(indices)} contrasts have to be "
        f"won, and a win on all {contrast.problems} problems of {contrast.task} has p = {p:.6f} at level "
        f"{level:.6f}; plan more problems or fewer contrasts"
    )
