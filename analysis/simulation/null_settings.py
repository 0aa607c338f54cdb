"""The settings in which a method has to keep its level: how often answers differ, and in which direction."""

from typing import NamedTuple

DISCORDANCES = (0.005, 0.01, 0.02, 0.05, 0.10, 0.17, 0.25)  # where whole rules are simulated
SYMMETRIC, GAINS, LOSSES = "symmetric", "gains one seed", "loses one seed"
SMALL, TOTAL = "many small losses", "few total losses"


class Setting(NamedTuple):
    """A null population.

    kind: "symmetric", answers differ equally in both directions; "gains one seed", the subject gains one seed
    in many problems and loses all in few, so that its mean is zero; "loses one seed", the opposite.
    discordance: share of answers that differ if symmetric, else of problems.
    loss_kind: how the subject is worse by a margin: "many small losses" or "few total losses".
    """

    kind: str
    discordance: float
    loss_kind: str = ""

    def __str__(self) -> str:
        share, worse = f"{100 * self.discordance:g} %", f", worse by {self.loss_kind}" if self.loss_kind else ""
        if self.kind == SYMMETRIC:
            return f"{share} of answers differ, either way alike{worse}"
        other = "loses" if self.kind == GAINS else "gains"
        return f"{share} of problems differ, the subject {self.kind} in many and {other} all in few{worse}"


def kinds(seeds: int, *, margin: bool = False) -> list[Setting]:
    """Return a setting of each kind, at any discordance; with one seed only symmetric ones have a mean of zero."""
    names = (SYMMETRIC, GAINS, LOSSES) if seeds > 1 else (SYMMETRIC,)
    return [Setting(name, DISCORDANCES[0], loss) for name in names for loss in ((SMALL, TOTAL) if margin else ("",))]


def settings(seeds: int, *, margin: bool = False) -> tuple[Setting, ...]:
    """Return the settings in which whole rules are simulated. margin: with a loss."""
    return tuple(kind._replace(discordance=share) for kind in kinds(seeds, margin=margin) for share in DISCORDANCES)
