"""How much accuracy may memory buy? Ways to compare two policies that did not hold quite the same.

Everywhere the subject is the comparator with another amount of memory: accuracy follows one curve of memory,
so that every CONFIRMED of a study without an effect is bought. A study has two models with one tested cell
each. What is measured of the comparator's curve beside that cell is the layout: its other budget, or the
full cache. Answers share what those of `simulated.CHAIN` do, budgets being cells.

    python -m benchmarks.memory_matching            # 4,000 studies a setting
    python -m benchmarks.memory_matching --quick    # a tenth of them
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import date
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from benchmarks.memory_forms import FORMS, Array, Layout, Seen, Tested
from benchmarks.report import processor, table
from benchmarks.simulated import CHAIN

__all__ = ["CURVES", "LAYOUTS", "SIZES", "accuracy", "decided", "main", "simulated"]

ALPHA = 0.05
MODELS = 2
SIZES = ((200, 1), (287, 3), (500, 2), (1000, 1))  # problems and seeds
SLOPES = (0.0, 0.5, 0.87, 1.0, 1.5)  # accuracy points a slot, as percent
EXCESS = (0.0, 0.0025, 0.005, 0.01, 0.02)  # of the comparator's memory
HONEST = (-0.0024, -0.0008, 0.0012, 0.0024)  # alpha-chain: ratios of 0.9976 to 0.9992; retrieval: 1.0012
EFFECT = 2.4  # standard errors, which some 80 % of the studies see
BLOCK = 1 << 20  # answers of one arm held at a time


LAYOUTS = (
    Layout("64 of 64 and 128", 64, 0, 128),
    Layout("128 of 64 and 128, full 147", 128, 64, 147),
    Layout("128 alone, full 147", 128, 0, 147),
    Layout("64 alone, full 147", 64, 0, 147),
    Layout("128 alone, full 1,000", 128, 0, 1000),
    Layout("256 of 192 and 256, full 320", 256, 192, 320),
)
UNSEEN = Layout("256 alone, full 1,000", 256, 0, 1000)  # a slope that nothing in the study shows
CURVES = (("linear", 0.3), ("sigmoid", 0.5), ("sigmoid", 0.3), ("sigmoid", 0.8))  # and accuracy when tested


def accuracy(curve: str, here: float, slope: float, slots: float, at: float) -> float:
    """Of a cache of `at` slots: `here` at `slots`, with `slope` (a slot, not percent) just there."""
    if slope == 0:
        return here
    if curve == "linear":
        return float(np.clip(here + slope * (at - slots), 0.001, 0.999))
    steepness = slope / (here * (1 - here))
    return float(special.expit(special.logit(here) + steepness * (at - slots)))


class Latent(NamedTuple):
    """Answers [seed, study, model, problem], right below the bound of an accuracy."""

    subject: NDArray[np.float32]
    here: NDArray[np.float32]
    below: NDArray[np.float32]
    above: NDArray[np.float32]


def drawn(studies: int, problems: int, seeds: int, rng: np.random.Generator) -> Latent:
    def normal(*which: str) -> NDArray[np.float32]:
        shape = (seeds if "seed" in which else 1, studies, MODELS if "cell" in which else 1, problems)
        found: NDArray[np.float32] = rng.standard_normal(shape, dtype=np.float32)
        return found * np.float32(CHAIN.shares[which] ** 0.5)

    hard = normal()
    cells = [hard + normal("cell") + normal("cell", "seed") for _ in range(3)]
    return Latent(*(cells[place] + normal("cell", "arm") + normal("cell", "arm", "seed") for place in (0, 0, 1, 2)))


def right(latent: NDArray[np.float32], share: float) -> NDArray[np.float32]:
    """[study, model, problem], mean over seeds."""
    found = (latent < np.float32(special.ndtri(share))).sum(axis=0, dtype=np.int8)
    means: NDArray[np.float32] = found.astype(np.float32) / np.float32(len(latent))
    return means


def seen(
    own: NDArray[np.float32],
    here: NDArray[np.float32],
    below: NDArray[np.float32] | None,
    above: NDArray[np.float32],
) -> Seen:
    """[study, model, problem] each; below None: an empty cache, right nowhere."""
    gain, rise = own - here, above - here
    fall = None if below is None else here - below
    up, together = moments(rise, rise), moments(gain, rise)
    won = moments(gain, gain)
    if fall is None:
        down = Moments(here.mean(axis=-1, dtype=np.float64), np.zeros(here.shape[:2]))
    else:
        down = moments(fall, fall)
    return Seen(
        won.mean,
        won.variance**0.5,
        up.mean,
        up.variance**0.5,
        together.variance,
        down.mean,
        down.variance**0.5,
    )


class Moments(NamedTuple):
    mean: Array  # of the first
    variance: Array  # covariance of the two means


def moments(first: NDArray[np.float32], second: NDArray[np.float32]) -> Moments:
    problems = first.shape[-1]
    means = [each.mean(axis=-1, dtype=np.float64) for each in (first, second)]
    product = np.einsum("smp,smp->sm", first, second).astype(np.float64)
    shared = (product - problems * means[0] * means[1]) / (problems - 1) / problems
    return Moments(means[0], np.where(first is second, np.maximum(shared, 1e-12), shared))


class Decided(NamedTuple):
    """Shares of the studies. superior: at_least = 1 of both contrasts; branch: the first model primary."""

    superior: float
    refuted: float
    branch: float


def decided(tested: Tested, problems: int) -> Decided:
    t = tested.gain / tested.error
    corrected, alone = (stats.t.isf(level / 2, problems - 1) for level in (ALPHA / MODELS, ALPHA))
    harmless = ~(t <= -alone).any(axis=1)
    branch = (t[:, 0] >= alone) & (tested.gain[:, 1] > 0) & harmless
    shares = ((t >= corrected).any(axis=1) & harmless, (t <= -corrected).any(axis=1), branch)
    return Decided(*(float(share.mean()) for share in shares))


class Key(NamedTuple):
    """A setting, what the subject holds more (or less), and by which form it was judged."""

    problems: int
    slope: float
    curve: str
    here: float
    layout: str
    excess: float
    form: str


Found = dict[Key, Decided]


def simulated(
    studies: int,
    problems: int,
    seeds: int,
    rng: np.random.Generator,
    layouts: Sequence[Layout] = LAYOUTS,
    *,
    power: bool = False,
) -> Found:
    """Every setting on the same answers. power: with an effect, and with what honest policies hold more."""
    parts: dict[Key, list[tuple[int, Decided]]] = {}
    rows = max(1, min(studies, BLOCK // (problems * MODELS * seeds)))
    slopes, excesses = ((0.87, 1.5), (0.0, *HONEST)) if power else (SLOPES, (*EXCESS, -EXCESS[-1]))
    for start in range(0, studies, rows):
        latent = drawn(min(rows, studies - start), problems, seeds, rng)
        for slope, (curve, here), layout in itertools.product(slopes, CURVES, layouts):
            for excess, name, found in _judged(latent, curve, here, slope / 100, layout, excesses, power):
                key = Key(problems, slope, curve, here, layout.name, excess, name)
                parts.setdefault(key, []).append((latent.here.shape[1], found))
    return {key: _together(found) for key, found in parts.items()}


def _together(parts: Sequence[tuple[int, Decided]]) -> Decided:
    return Decided(*np.average([found for _, found in parts], axis=0, weights=[count for count, _ in parts]))


def _judged(
    latent: Latent,
    curve: str,
    here: float,
    slope: float,
    layout: Layout,
    excesses: Sequence[float],
    power: bool,
) -> Iterator[tuple[float, str, Decided]]:
    def share(at: float) -> float:
        return accuracy(curve, here, slope, layout.slots, at)

    problems = latent.here.shape[-1]
    other, above = right(latent.here, here), right(latent.above, share(layout.above))
    below = right(latent.below, share(layout.below)) if layout.below else None
    spread = float((other - right(latent.subject, here)).std())
    effect = EFFECT * spread / problems**0.5 if power else 0.0
    for excess in excesses:
        own = right(latent.subject, min(share(layout.slots * (1 + excess)) + effect, 0.9999))
        measured = seen(own, other, below, above)
        for name, (form, most) in FORMS.items():
            if abs(excess) <= most:
                yield excess, name, decided(form(measured, layout, excess), problems)


# ------------------------------------------------------------------------------------- what is printed


def worst(found: Found, word: str) -> str:
    return f"{100 * max(getattr(decided, word) for decided in found.values()):.1f}" if found else ""


def only(found: Found, **wanted: float | str) -> Found:
    """The settings in which the fields of the key have these values."""
    return {
        key: decided
        for key, decided in found.items()
        if all(getattr(key, field) == value for field, value in wanted.items())
    }


def less_or_more(found: Found) -> tuple[Found, Found]:
    """The settings in which the subject holds as much or more, and those in which it holds less."""
    more = {key: one for key, one in found.items() if key.excess >= 0}
    return more, {key: one for key, one in found.items() if key.excess < 0}


def slopes_table(found: Found, word: str) -> str:
    """Rows: forms; columns: slopes."""
    rows = [[name, *(worst(only(found, form=name, slope=slope), word) for slope in SLOPES)] for name in FORMS]
    return table(["form", *map(str, SLOPES)], rows)


def sizes_table(found: Found, name: str) -> str:
    """Rows: sizes and what was let through; columns: slopes; superior and branch."""
    rows = []
    for (problems, seeds), excess in itertools.product(SIZES, EXCESS):
        here = only(found, problems=problems, excess=excess, form=name)
        of_slopes = [only(here, slope=slope) for slope in SLOPES]
        shares = [f"{worst(each, 'superior')} / {worst(each, 'branch')}" for each in of_slopes]
        rows.append([f"{problems} x {seeds}", f"{100 * excess:g} %", *shares])
    return table(["n x seeds", "more memory", *map(str, SLOPES)], rows)


def power_table(found: Found) -> str:
    """Of `superior`: percent of the studies, mean over settings, and of those of today's tolerance."""
    today = next(iter(FORMS))

    def mean(name: str, excess: float) -> float:
        shares = [one.superior for key, one in found.items() if (key.form, key.excess) == (name, excess)]
        return float(np.mean(shares))

    def row(name: str) -> list[str]:
        shares = [mean(name, excess) for excess in (0.0, *HONEST)]
        kept = [100 * share / mean(today, 0.0) for share in shares]
        return [name, *(f"{100 * share:.1f} ({of:.0f})" for share, of in zip(shares, kept, strict=True))]

    columns = ["form", *(f"ratio {1 + excess:g}" for excess in (0.0, *HONEST))]
    return table(columns, [row(name) for name, (_, most) in FORMS.items() if most >= max(HONEST)])


def main(argv: Sequence[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.memory_matching",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--quick", action="store_true", help="a tenth of the studies")
    made.add_argument("--seed", type=int, default=20261122, help="of the simulation; default 20261122")
    arguments = made.parse_args(argv)
    count, rng = (400 if arguments.quick else 4_000), np.random.default_rng(arguments.seed)
    started = time.perf_counter()
    found: Found = {}
    unseen: Found = {}
    strong: Found = {}
    for problems, seeds in SIZES:
        found |= simulated(count, problems, seeds, rng)
        unseen |= simulated(count // 4, problems, seeds, rng, (UNSEEN,))
        strong |= simulated(count // 4, problems, seeds, rng, power=True)
    taken = time.perf_counter() - started
    chosen = list(FORMS)[-1]
    print(f"{date.today().isoformat()}; {processor()}, {os.cpu_count()} cores, {platform.system()}; ", end="")
    print(f"python {platform.python_version()}.")
    command = " ".join(["python", "-m", "benchmarks.memory_matching", *argv])
    print(f"`{command}`: {taken:.0f} s, {count} studies.\n")
    (more, less), (blind, _) = less_or_more(found), less_or_more(unseen)
    titles = (
        ("`superior` says CONFIRMED (%), by points a slot", slopes_table(more, "superior")),
        ("`branch` says A (%), the same", slopes_table(more, "branch")),
        ("`superior` says REFUTED (%) of a subject with 2 % less", slopes_table(less, "refuted")),
        (f"{chosen}: `superior` / `branch` (%), the worst layout and curve", sizes_table(found, chosen)),
        (f"{UNSEEN.name}: `superior` says CONFIRMED (%)", slopes_table(blind, "superior")),
        ("Power of `superior` (%), and of what the tolerance alone keeps", power_table(strong)),
    )
    for title, text in titles:
        print(f"**{title}**\n\n{text}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
