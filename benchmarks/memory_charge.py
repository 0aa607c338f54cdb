"""What does an excess of memory buy, by each rule of judging, where the comparator's curve has cliffs or steps?

The subject is the comparator with another amount of memory, so that every CONFIRMED is bought, and every REFUTED of a
subject with less is unfair. Accuracy follows a curve of memory, a multiple of the comparator's at the tested budget. A
study has two models with one cell each; what else is measured is the layout. Answers share what those of
alpha-chain do, and those at a neighbour what two arms at one budget do. Tests are Student's t.

    python -m benchmarks.memory_charge            # 2,000 studies a setting
    python -m benchmarks.memory_charge --quick    # a tenth of them
"""

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from analysis.stats import memory_charge
from analysis.stats.memory_charge import CurvePoint, Neighbour
from benchmarks.report import processor, table

ALPHA, MODELS = 0.05, 2
EFFECT = 2.4  # standard errors, which some 80 % of the studies see
EXCESSES = (0.0012, 0.005, 0.02, -0.0012, -0.02)
HONEST = (0.0, 0.0012, 0.0024, 0.01)
STEP = 0.03  # from the budget to its neighbours
FORMS = ("2 x chord", "rise, cliffs of 0.5 %", "neighbours at 3 %")  # judging 1; 2 and 3; with registered neighbours

# What answers share, of the variance of a latent variable, by what else differs: tetrachoric correlations of
# single answers of alpha-chain at budget 64, medians: 0.92 between seeds of an arm, 0.77 between the arms at other
# seeds and 0.80 at one, 0.58 between budgets, 0.52 between models.
SHARES: Mapping[tuple[str, ...], float] = {
    (): 0.50,
    ("cell",): 0.27,
    ("cell", "arm"): 0.15,
    ("cell", "seed"): 0.03,
    ("cell", "arm", "seed"): 0.05,
}

Array = NDArray[np.float64]
Curve = Callable[[float], float]  # memory over the comparator's at the tested budget -> accuracy


class Layout(NamedTuple):
    """Mean slots of the tested budget and of what else was measured; below 0.0 is an empty cache."""

    slots: float
    below: float
    above: float


LAYOUTS = (Layout(64, 0, 128), Layout(128, 64, 147), Layout(64, 0, 1000))


def _cliff(factor: float, here: float) -> Curve:
    """Accuracy goes from 12 to 88 % over `factor` of memory, and is `here` at the tested budget."""
    steepness = 4 / np.log(factor)
    return lambda memory: float(special.expit(special.logit(here) + steepness * np.log(max(memory, 1e-9))))


def _steps(*steps: tuple[float, float]) -> Curve:
    """steps: the memory from which an accuracy holds, rising."""
    return lambda memory: next(accuracy for start, accuracy in reversed(steps) if memory >= start)


def _line(points: float) -> Curve:
    """points: a slot, percent, of 64 slots."""
    return lambda memory: float(np.clip(0.5 + 0.64 * points * (memory - 1), 0.05, 0.95))


CURVES: Mapping[str, Curve] = {
    "flat": lambda memory: 0.5,
    **{f"{points} points a slot": _line(points) for points in (0.5, 1.5)},
    **{f"cliff of {factor}": _cliff(factor, 0.5) for factor in (1.5, 1.22, 1.08, 1.02, 1.004)},
    "cliff of 1.08, its foot": _cliff(1.08, 0.12),
    "cliff of 1.08, its head": _cliff(1.08, 0.8),
    "step right above": _steps((0, 0.12), (1.0005, 0.88)),
    "step below the neighbour": _steps((0, 0.12), (1.015, 0.88)),
    "step right below": _steps((0, 0.12), (0.9995, 0.88)),
    "plateaus": _steps((0, 0.2), (0.9995, 0.5), (1.0005, 0.55), (1.3, 0.9)),
    "dip": _steps((0, 0.8), (0.9, 0.4), (1.0005, 0.7)),
    "bump": _steps((0, 0.5), (1.0005, 0.8), (1.03, 0.55)),
}


class Answers(NamedTuple):
    """Normal variables [study, model, problem], right below the bound of an accuracy."""

    subject: NDArray[np.float32]
    here: NDArray[np.float32]
    near: NDArray[np.float32]
    below: NDArray[np.float32]
    above: NDArray[np.float32]


def draw_latent(studies: int, problems: int, rng: np.random.Generator) -> Answers:
    def normal(*which: str) -> NDArray[np.float32]:
        shape = (studies, MODELS if "cell" in which else 1, problems)
        return rng.standard_normal(shape, dtype=np.float32) * np.float32(SHARES[which] ** 0.5)

    hard = normal()
    cells = [hard + normal("cell") + normal("cell", "seed") for _ in range(3)]
    return Answers(*(cells[place] + normal("cell", "arm") + normal("cell", "arm", "seed") for place in (0, 0, 0, 1, 2)))


class Change(NamedTuple):
    """A mean difference of two arms and its standard error, [study, model]."""

    mean: Array
    error: Array

    def exceeds(self, null: Array | float, level: float, problems: int) -> NDArray[np.bool_]:
        return np.asarray((self.mean - null) / self.error >= stats.t.isf(level, problems - 1))


def _compare(first: NDArray[np.bool_], second: NDArray[np.bool_] | None) -> Change:
    """second: None for an empty cache, right nowhere."""
    difference = first.astype(np.float32) - (0 if second is None else second)
    mean = difference.mean(axis=-1, dtype=np.float64)
    variance = np.square(difference).mean(axis=-1, dtype=np.float64) - mean**2
    return Change(mean, np.sqrt(np.maximum(variance / (difference.shape[-1] - 1), 1e-12)))


class Decided(NamedTuple):
    """Shares of studies. superior: at_least = 1 of both contrasts."""

    superior: float
    refuted: float


def try_curve(latent: Answers, curve: Curve, layout: Layout, excess: float, effect: float = 0.0) -> dict[str, Decided]:
    """Return the decisions by form. effect: of the subject, in accuracy."""
    side, problems = (1 if excess >= 0 else -1), latent.here.shape[-1]

    def answer(variable: NDArray[np.float32], memory: float, effect: float = 0.0) -> NDArray[np.bool_]:
        return variable < np.float32(special.ndtri(min(curve(memory) + effect, 0.9999)))

    own, here = answer(latent.subject, 1 + excess, effect), answer(latent.here, 1.0)
    near = answer(latent.near, 1 + side * STEP)
    above = _compare(answer(latent.above, layout.above / layout.slots), here)
    below = _compare(here, answer(latent.below, layout.below / layout.slots) if layout.below else None)
    gain = _compare(own, here)
    nulls = {form: _charge(form, layout, excess, here, above, below) for form in FORMS[:2]}
    decided = {form: _decide([gain], null, problems) for form, null in nulls.items()}
    decided[FORMS[2]] = _decide([gain, *([_compare(own, near)] if excess else [])], np.zeros(gain.mean.shape), problems)
    return decided


def _decide(changes: Sequence[Change], charge: Array, problems: int) -> Decided:
    """A win and a loss have to exceed the charge on their side in every change."""
    level = ALPHA / 2 / MODELS
    mirrored = [change._replace(mean=-change.mean) for change in changes]
    won = np.all([change.exceeds(np.maximum(charge, 0), level, problems) for change in changes], axis=0)
    lost = np.all([change.exceeds(np.maximum(-charge, 0), level, problems) for change in mirrored], axis=0)
    harmed = mirrored[0].exceeds(0.0, ALPHA / 2, problems)
    return Decided(float((won.any(axis=1) & ~harmed.any(axis=1)).mean()), float(lost.any(axis=1).mean()))


def _charge(form: str, layout: Layout, excess: float, here: NDArray[np.bool_], above: Change, below: Change) -> Array:
    """Return what the judge charges, [study, model]."""
    memory, limit = layout.slots * (1 + excess), stats.norm.isf(ALPHA / 2 / MODELS)

    def points(place: tuple[int, ...]) -> float:
        rise, fall, accuracy = above.mean[place], below.mean[place], float(here[place].mean())
        if form == FORMS[0]:
            curve = [CurvePoint(layout.above, accuracy + rise)]
            curve += [CurvePoint(layout.below, accuracy - fall)] if layout.below else []
            return memory_charge.charge_memory(memory, CurvePoint(layout.slots, accuracy), curve).points
        reach, drop = limit * above.error[place], limit * below.error[place]
        return memory_charge.bound_charge(
            memory,
            layout.slots,
            [Neighbour(layout.above, rise - reach, rise + reach), Neighbour(layout.below, -fall - drop, -fall + drop)],
        ).points

    return np.array([points(place) for place in np.ndindex(above.mean.shape)]).reshape(above.mean.shape)


def _errors(latent: Answers, curve: Curve) -> list[str]:
    """Return by form the shares of studies that err, in percent, by excess: the worst layout."""
    found = [[try_curve(latent, curve, layout, excess) for layout in LAYOUTS] for excess in EXCESSES]
    return [
        " / ".join(
            f"{100 * max(each[form].superior if excess > 0 else each[form].refuted for each in layouts):.1f}"
            for excess, layouts in zip(EXCESSES, found, strict=True)
        )
        for form in FORMS
    ]


def _power(latent: Answers, excess: float) -> list[str]:
    """Return by form the power of `superior`, in percent, mean over layouts, on a curve of half a point a slot: for a
    true difference that 80 % see, one twice and one four times as large.
    """
    curve = CURVES["0.5 points a slot"]
    spread = float(_compare(latent.here < 0, latent.subject < 0).error.mean())
    found = [
        [try_curve(latent, curve, layout, excess, times * EFFECT * spread) for layout in LAYOUTS] for times in (1, 2, 4)
    ]
    return [
        " / ".join(f"{100 * float(np.mean([each[form].superior for each in layouts])):.0f}" for layouts in found)
        for form in FORMS
    ]


def main(argv: Sequence[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory_charge", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the studies")
    studies, rng, started = 2_000, np.random.default_rng(20261128), time.process_time()
    if parser.parse_args(argv).quick:
        studies //= 10
    errors, power = [], []
    for problems in (287, 1000):
        latent = draw_latent(studies, problems, rng)
        errors += [[name, str(problems), *_errors(latent, curve)] for name, curve in CURVES.items()]
        power += [[str(problems), f"{100 * excess:+g} %", *_power(latent, excess)] for excess in HONEST]
    print(f"{date.today().isoformat()}; {processor()}. {time.process_time() - started:.0f} s, {studies} studies.\n")
    excesses = " / ".join(f"{100 * excess:+g} %" for excess in EXCESSES)
    print(f"**Errors (%), memory {excesses}**\n\n{table(['curve', 'n', *FORMS], errors)}\n")
    print(f"**Power (%), effects of 1 / 2 / 4**\n\n{table(['n', 'memory', *FORMS], power)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
