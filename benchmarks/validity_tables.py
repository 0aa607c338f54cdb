"""What `benchmarks.validity` finds and prints: a Markdown table of each kind of result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from analysis.rules.verdicts import CONFIRMED, REFUTED
from analysis.stats.interval import clopper_pearson
from benchmarks.report import table
from benchmarks.simulated import MAX_T, METHODS

BAND = (0.04, 0.06)


class Errors(NamedTuple):
    """Of one setting, where nothing differs."""

    problems: int
    accuracy: float
    discordant: float  # share of problems whose arms differ
    alone: dict[str, float]  # rejections of one contrast at ALPHA
    corrected: dict[str, float]  # and at the corrected level, as a multiple of it
    family: dict[str, float]  # any contrast of a study rejected at the corrected level
    whole: dict[str, dict[str, float]]  # by method, what `superior` says
    branch: dict[str, dict[str, float]]  # and `branch`, for a family of two models
    studies: int


class Coverage(NamedTuple):
    """How often an interval at 95 % holds the true difference `effect`; "4 of": how often all of a family
    do, at the Bonferroni level or by max-t.
    """

    problems: int
    accuracy: float
    effect: float
    shares: dict[str, float]


class Power(NamedTuple):
    """How often `effect` is found at ALPHA, and what `power_at` says of Student's t."""

    problems: int
    accuracy: float
    effect: float
    found: dict[str, float]
    formula: float


def percent(share: float) -> str:
    return f"{100 * share:.1f}"


def banded(count: float, of: int) -> str:
    """A share in percent, and on which side of the band it lies; "?" where the simulation cannot tell."""
    share = percent(count)
    if BAND[0] <= count <= BAND[1]:
        return share
    low, high = clopper_pearson(round(count * of), of)
    side = "below" if count < BAND[0] else "above"
    return f"{share} {side}{'?' if low <= BAND[1] and high >= BAND[0] else ''}"


def setting(one: Errors | Coverage | Power) -> list[str]:
    return [f"{one.problems}, {100 * one.accuracy:.0f} %"]


def errors_table(rows: Sequence[Errors]) -> str:
    columns = ["n, accuracy", "discordant", *METHODS, *(f"{method}, corrected" for method in METHODS)]
    return table(
        columns,
        [
            setting(one)
            + [percent(one.discordant)]
            + [percent(one.alone[method]) for method in METHODS]
            + [f"{one.corrected[method]:.2f} x" for method in METHODS]
            for one in rows
        ],
    )


def whole_table(rows: Sequence[Errors]) -> str:
    methods = (*METHODS, MAX_T)
    return table(
        ["n, accuracy", *(f"{name}, any" for name in methods), *methods],
        [
            setting(one)
            + [percent(one.family[name]) for name in methods]
            + [banded(either(one.whole[name]), one.studies) for name in methods]
            for one in rows
        ],
    )


def either(words: Mapping[str, float]) -> float:
    return words.get(CONFIRMED, 0.0) + words.get(REFUTED, 0.0)


def branch_table(rows: Sequence[Errors]) -> str:
    def cell(one: Errors, method: str) -> str:
        words = one.branch[method]
        parts = [percent(words.get(word, 0.0)) for word in (CONFIRMED, REFUTED)]
        return f"{' + '.join(parts)} = {banded(either(words), one.studies)}"

    found = [setting(one) + [cell(one, method) for method in METHODS] for one in rows]
    return table(["n, accuracy", *(f"{method}: A + REFUTED" for method in METHODS)], found)


def coverage_table(rows: Sequence[Coverage]) -> str:
    names = list(rows[0].shares)
    return table(
        ["n, accuracy", "true difference", *names],
        [setting(one) + [f"{100 * one.effect:+.1f}"] + [percent(one.shares[name]) for name in names] for one in rows],
    )


def power_table(rows: Sequence[Power]) -> str:
    return table(
        ["n, accuracy", "true difference", "formula", *METHODS],
        [
            setting(one)
            + [f"{100 * one.effect:+.1f}", percent(one.formula)]
            + [percent(one.found[method]) for method in METHODS]
            for one in rows
        ],
    )
