"""Ways to compare two policies that did not hold quite the same memory, of which one was chosen.

Each takes what a study measured and the excess of the subject, and gives the difference that is tested.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

__all__ = ["FORMS", "Array", "Form", "Layout", "Seen", "Tested"]

Array = NDArray[np.float64]


LIMIT = float(stats.norm.isf(0.05 / 2 / 2))  # of a rise, at the level of one contrast of two


class Layout(NamedTuple):
    """Mean slots of the tested budget and of what else was measured; below 0.0 is an empty cache."""

    name: str
    slots: float
    below: float
    above: float


class Seen(NamedTuple):
    """What a study measured, [study, model] each; accuracies of the comparator, differences of the subject.

    gain: the difference; error: its standard error; rise: accuracy above less accuracy here; apart: its
    standard error; shared: their covariance. fall: accuracy here less accuracy below (0 of an empty cache).
    """

    gain: Array
    error: Array
    rise: Array
    apart: Array
    shared: Array
    fall: Array
    dropped: Array  # standard error of `fall`


class Tested(NamedTuple):
    gain: Array
    error: Array


Form = Callable[[Seen, Layout, float], Tested]  # of an excess: the difference that is tested, moved


def chords(seen: Seen, layout: Layout) -> tuple[Array, Array]:
    """Accuracy a slot, towards more memory and towards less."""
    more, less = layout.above - layout.slots, layout.slots - layout.below
    return seen.rise / more, seen.fall / less


def moved(seen: Seen, charge: Array) -> Tested:
    """A subject that holds more has to win by more than `charge`; one that holds less, to lose by more."""
    toward = np.sign(seen.gain) * np.maximum(np.abs(seen.gain) - np.abs(charge), 0)
    against = np.sign(charge) == np.sign(seen.gain)
    return Tested(np.where(against, toward, seen.gain), seen.error)


def as_measured(seen: Seen, layout: Layout, excess: float) -> Tested:
    return Tested(seen.gain, seen.error)


def chord(times: float, least: float = 0.0) -> Form:
    """times: the steepest chord next to the budget, or `least` points for 100 % more memory."""

    def form(seen: Seen, layout: Layout, excess: float) -> Tested:
        steepest = np.maximum(*chords(seen, layout))
        price = np.maximum(times * np.maximum(steepest, 0) * layout.slots, least)
        return moved(seen, price * excess)

    return form


def upper_limit(seen: Seen, layout: Layout, excess: float) -> Tested:
    """The upper 95 % limit of the steeper chord."""
    more, less = layout.above - layout.slots, layout.slots - layout.below
    sure = stats.norm.ppf(0.95)
    slope = np.maximum((seen.rise + sure * seen.apart) / more, (seen.fall + sure * seen.dropped) / less)
    return moved(seen, np.maximum(slope, 0) * layout.slots * excess)


def rise(cliff: float) -> Form:
    """A share of the upper limit of the whole rise to the next measurement: all of it for an excess of `cliff`
    or more. A shortfall: of the fall.
    """

    def form(seen: Seen, layout: Layout, excess: float) -> Tested:
        share = min(1.0, abs(excess) / cliff) if excess else 0.0
        upper = seen.rise + LIMIT * seen.apart if excess > 0 else seen.fall + LIMIT * seen.dropped
        return moved(seen, np.sign(excess) * np.maximum(share * upper, 2 * min(abs(excess), 0.02)))

    return form


def interpolated(seen: Seen, layout: Layout, excess: float) -> Tested:
    """The comparator at the subject's memory, on the line to the budget above; its error is estimated too.
    A subject that holds less is left where it is: this form was tried for what more memory buys.
    """
    weight = max(excess, 0) * layout.slots / (layout.above - layout.slots)
    variance = seen.error**2 + (weight * seen.apart) ** 2 - 2 * weight * seen.shared
    return Tested(seen.gain - weight * seen.rise, np.sqrt(np.maximum(variance, 1e-12)))


FORMS: Mapping[str, tuple[Form, float]] = MappingProxyType(  # and the largest excess that it lets through
    {
        "tolerance 2 %": (as_measured, 0.02),
        "tolerance 0.25 %": (as_measured, 0.0025),
        "interpolated": (interpolated, 0.02),
        "chord": (chord(1), 0.02),
        "upper limit of chord": (upper_limit, 0.02),
        "2 x chord": (chord(2), 0.02),
        "2 x chord, at least 1": (chord(2, 1), 0.02),
        "2 x chord, at least 2": (chord(2, 2), 0.02),
        "rise, cliffs of 1 %": (rise(0.01), 0.02),
        "rise": (rise(1e-9), 0.02),
        "rise, cliffs of 0.5 %": (rise(0.005), 0.02),
    }
)
