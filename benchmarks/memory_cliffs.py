"""How much accuracy may memory buy where the curve has cliffs, steps, plateaus or bumps?

As in `memory_matching` the subject is the comparator with another amount of memory, so that every CONFIRMED is
bought, and every REFUTED of a subject with less is unfair. Accuracy follows a curve of memory, here as a multiple
of the comparator's at the tested budget.

    python -m benchmarks.memory_cliffs            # 2,000 studies a setting
    python -m benchmarks.memory_cliffs --quick    # a tenth of them
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import date

import numpy as np
from scipy import special

from benchmarks.memory_forms import FORMS, Layout
from benchmarks.memory_matching import EFFECT, LAYOUTS, Decided, Latent, decided, drawn, right, seen
from benchmarks.report import processor, table

__all__ = ["CURVES", "TRIED", "main", "try_curve"]

Curve = Callable[[float], float]  # memory over the comparator's at the tested budget -> accuracy
TRIED = ("2 x chord, at least 2", *(name for name in FORMS if name.startswith("rise")))
MEASURED = LAYOUTS[:2]
EXCESSES = (0.0012, 0.005, 0.02, -0.02)
BEYOND = (0.1, 0.3, 0.5)  # excesses of iso-cache, between 64 and 128 slots
ISO_CACHE = ("interpolated", TRIED[-1])
HONEST = (0.0, 0.0012, 0.0024)


def _cliff(factor: float, here: float) -> Curve:
    """Accuracy goes from 12 to 88 % over `factor` of memory, and is `here` at the tested budget."""
    steepness = 4 / np.log(factor)
    return lambda memory: float(special.expit(special.logit(here) + steepness * np.log(max(memory, 1e-9))))


def _steps(*steps: tuple[float, float]) -> Curve:
    """steps: the memory from which an accuracy holds, rising."""
    return lambda memory: next(accuracy for start, accuracy in reversed(steps) if memory >= start)


CURVES: Mapping[str, Curve] = {
    "flat": lambda memory: 0.5,
    **{f"cliff of {factor}": _cliff(factor, 0.5) for factor in (1.5, 1.22, 1.08, 1.02)},
    "cliff of 1.08, its foot": _cliff(1.08, 0.12),
    "cliff of 1.08, its head": _cliff(1.08, 0.8),
    "step right above": _steps((0, 0.12), (1.0005, 0.88)),
    "step right below": _steps((0, 0.12), (0.9995, 0.88)),
    "plateaus": _steps((0, 0.2), (0.9995, 0.5), (1.0005, 0.55), (1.3, 0.9)),
    "dip": _steps((0, 0.8), (0.9, 0.4), (1.0005, 0.7)),
    "saturating": lambda memory: 0.8 - 0.3 * float(np.exp(-4 * (memory - 1))),
    "bump": _steps((0, 0.5), (1.0005, 0.8), (1.03, 0.55)),
}


def try_curve(latent: Latent, curve: Curve, layout: Layout, excess: float, effect: float = 0.0) -> dict[str, Decided]:
    """Return the decisions by form. effect: of the subject, in accuracy."""
    here, above = right(latent.here, curve(1.0)), right(latent.above, curve(layout.above / layout.slots))
    below = right(latent.below, curve(layout.below / layout.slots)) if layout.below else None
    own = right(latent.subject, min(curve(1 + excess) + effect, 0.9999))
    measured, problems = seen(own, here, below, above), latent.here.shape[-1]
    forms = {"interpolated", *TRIED}
    return {form: decided(FORMS[form][0](measured, layout, excess), problems) for form in forms}


def _errors(latent: Latent, curve: Curve) -> list[str]:
    """Return by form the shares of studies that err, in percent, by excess: the worse layout."""
    cells = []
    for form in TRIED:
        shares = []
        for excess in EXCESSES:
            word = "superior" if excess > 0 else "refuted"
            found = [getattr(try_curve(latent, curve, layout, excess)[form], word) for layout in MEASURED]
            shares.append(f"{100 * max(found):.1f}")
        cells.append(" / ".join(shares))
    return cells


def _iso_cache_errors(latent: Latent, curve: Curve) -> list[str]:
    """Return by form of iso-cache the shares of studies that say CONFIRMED, in percent, by excess."""
    found = [try_curve(latent, curve, LAYOUTS[0], excess) for excess in BEYOND]
    return [" / ".join(f"{100 * decisions[form].superior:.1f}" for decisions in found) for form in ISO_CACHE]


def _power(latent: Latent, excess: float) -> list[str]:
    """Return by form the power of `superior`, in percent, mean over layouts, on a curve of half a point a slot:
    for a true difference that 80 % see, one twice and one four times as large.
    """
    spread = float((right(latent.here, 0.5) - right(latent.subject, 0.5)).std())
    cells = []
    for form in TRIED:
        shares = []
        for times in (1, 2, 4):
            effect = times * EFFECT * spread / latent.here.shape[-1] ** 0.5
            found = [try_curve(latent, _line(layout), layout, excess, effect)[form].superior for layout in MEASURED]
            shares.append(f"{100 * float(np.mean(found)):.0f}")
        cells.append(" / ".join(shares))
    return cells


def _line(layout: Layout) -> Curve:
    return lambda memory: float(np.clip(0.5 + 0.005 * layout.slots * (memory - 1), 0.05, 0.95))


def main(argv: Sequence[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory_cliffs", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the studies")
    arguments = parser.parse_args(argv)
    studies, rng, started = (200 if arguments.quick else 2_000), np.random.default_rng(20261127), time.perf_counter()
    errors, beyond, power = [], [], []
    for problems in (287, 1000):
        latent = drawn(studies, problems, 1, rng)
        errors += [[name, str(problems), *_errors(latent, curve)] for name, curve in CURVES.items()]
        beyond += [[name, str(problems), *_iso_cache_errors(latent, curve)] for name, curve in CURVES.items()]
        power += [[str(problems), f"{100 * excess:+g} %", *_power(latent, excess)] for excess in HONEST]
    print(f"{date.today().isoformat()}; {processor()}. {time.perf_counter() - started:.0f} s, {studies} studies.\n")
    excesses = " / ".join(f"{100 * excess:+g} %" for excess in EXCESSES)
    print(f"**Errors (%), memory {excesses}**\n\n{table(['curve', 'n', *TRIED], errors)}\n")
    excesses = " / ".join(f"{100 * excess:+g} %" for excess in BEYOND)
    print(f"**Iso-cache says CONFIRMED (%), memory {excesses}**\n\n{table(['curve', 'n', *ISO_CACHE], beyond)}\n")
    print(f"**Power (%), effects of 1 / 2 / 4**\n\n{table(['n', 'memory', *TRIED], power)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
