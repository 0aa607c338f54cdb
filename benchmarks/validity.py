"""How often tests, intervals and the whole decision err, on simulated studies whose truth is known.

Every arm of a cell has the same accuracy unless an effect is asked for, so that any decision is an error.
What answers share is estimated from shipped records (`simulated.CHAIN`, `simulated.RETRIEVAL`).

    python -m benchmarks.validity            # 10,000 studies a setting
    python -m benchmarks.validity --quick    # a tenth of them, two sizes
    python -m benchmarks.validity --grid     # only every method with every rule over the null populations
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from datetime import date
from functools import partial
from importlib.metadata import version
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from analysis import rules
from analysis.rules.rule import Contrast
from analysis.stats import bootstrap, max_t, multiplicity, power
from analysis.stats.interval import clopper_pearson
from analysis.stats.paired_tests import sign_flip, student_t
from benchmarks import null_grid
from benchmarks.paired_shares import newcombe_paired, wilson
from benchmarks.report import processor
from benchmarks.simulated import (
    CHAIN,
    DRAWS,
    FLIPS,
    MAX_T,
    METHODS,
    RETRIEVAL,
    Seen,
    Shape,
    blocks,
    counts_of,
    seen,
    studies,
)
from benchmarks.validity_tables import (
    Coverage,
    Errors,
    Power,
    branch_table,
    coverage_table,
    errors_table,
    power_table,
    whole_table,
)

Found = TypeVar("Found")
ALPHA = 0.05
SIZES = (60, 201, 299, 500)
QUICK_SIZES = (60, 201)
ACCURACIES = (0.05, 0.25, 0.5, 0.75, 0.95)
POWERS = (0.2, 0.5, 0.8, 0.95)
GRID, GRID_STUDIES = ((200, 1), (500, 1), (200, 3)), 1_000  # problems and seeds
INTERVALS = 2_500  # studies whose intervals are looked at, 1,000 for those that draw


# ------------------------------------------------------------------------------------- the whole decision


def decided(found: Seen, method: str, said: Callable[[Sequence[Contrast]], str]) -> dict[str, float]:
    """The share of studies of which a committed rule says each word. A study in which no contrast is
    significant at all is not put to the rule: none decides it.

    With max-t a contrast alone has Student's p.
    """
    family = found.net.shape[1]
    alone = found.p["t" if method == MAX_T else method]
    adjusted = found.p[MAX_T] if method == MAX_T else np.minimum(1.0, family * alone)
    highs = np.where((found.net < 0) & (adjusted <= ALPHA), -1.0, 1.0)
    words: dict[str, int] = {}
    for study in zip(found.net, highs, alone, adjusted, strict=True):
        if min(study[2].min(), study[3].min()) > ALPHA:
            continue
        numbers = zip(*(each.tolist() for each in study), strict=True)
        word = said([contrast(place, family, found.lanes, *one) for place, one in enumerate(numbers)])
        words[word] = words.get(word, 0) + 1
    return {word: count / len(alone) for word, count in words.items()}


def contrast(place: int, family: int, lanes: int, net: int, high: float, p: float, adjusted: float) -> Contrast:
    """The first half of a family is of one model, the second half of another."""
    return Contrast(
        model="first" if place < family // 2 else "second",
        task="task",
        budget=str(place),
        subject="subject",
        against="comparator",
        delta=net / lanes,
        high=high,
        p=p,
        adjusted=adjusted,
        matched=True,
        net=net,
        lanes=lanes,
    )


def superior(contrasts: Sequence[Contrast]) -> str:
    return rules.RULES["superior"].verdict(contrasts, {"at_least": 1, "alpha": ALPHA})


def branch(contrasts: Sequence[Contrast]) -> str:
    """CONFIRMED is branch A, since all caches match."""
    decision = {"primary_model": "first", "transfer_model": "second", "alpha": ALPHA}
    return rules.RULES["branch"].verdict(contrasts, decision)


def errors(shape: Shape, problems: int, accuracy: float, count: int, seed: int) -> Errors:
    rng = np.random.default_rng([seed, problems, round(100 * accuracy), shape.family])
    found = seen(shape, problems, accuracy, count, rng)
    level = multiplicity.corrected_alpha(ALPHA, shape.family)
    one = studies(shape, problems, accuracy, 0.0, 20, rng).gained
    return Errors(
        problems,
        accuracy,
        float((one != 0).mean()),
        {method: float((found.p[method] <= ALPHA).mean()) for method in METHODS},
        {method: float((found.p[method] <= level).mean() / level) for method in METHODS},
        {name: float((p.min(axis=1) <= (ALPHA if name == MAX_T else level)).mean()) for name, p in found.p.items()},
        {name: decided(found, name, superior) for name in found.p},
        {method: decided(found, method, branch) for method in METHODS} if shape == CHAIN else {},
        count,
    )


# ------------------------------------------------------------------------------------- intervals and power


def detectable(shape: Shape, problems: int, accuracy: float, share: float, rng: np.random.Generator) -> float:
    """The true difference that Student's t finds with this power, towards one half."""
    gained = studies(shape, problems, accuracy, 0.0, 200, rng).gained
    variance = float((gained / shape.seeds).var() / problems)
    size = min(smallest_effect(variance, problems, ALPHA, share), 0.49)
    return size if accuracy <= 0.5 else -size


def power_at(effect: float, variance: float, problems: int, alpha: float = 0.05) -> float:
    """How often Student's t on problem means finds `effect` (points), two-sided at alpha, by the noncentral
    t.

    variance: of the mean difference, squared points; normal problem means are assumed.
    """
    freedom = problems - 1
    reach, shift = stats.t.ppf(1 - alpha / 2, freedom), effect / np.sqrt(variance)
    return float(stats.nct.sf(reach, freedom, shift) + stats.nct.cdf(-reach, freedom, shift))


def smallest_effect(variance: float, problems: int, alpha: float = 0.05, share: float = 0.8) -> float:
    """The true difference (points) found in this share of studies, the other error being negligible."""
    freedom = problems - 1
    reach = stats.t.ppf(1 - alpha / 2, freedom) + stats.t.ppf(share, freedom)
    return float(reach * np.sqrt(variance))


def coverage(problems: int, accuracy: float, count: int, seed: int) -> Coverage:
    rng = np.random.default_rng([seed, problems, round(100 * accuracy), 1])
    effect = detectable(CHAIN, problems, accuracy, 0.8, rng)
    level = 1 - multiplicity.corrected_alpha(ALPHA, CHAIN.family)
    names = ("t", "percentile", "sign-flip", "4 of t", "4 of percentile", "4 of max-t")
    held: dict[str, list[bool]] = {name: [] for name in names}

    def holds(low: float, high: float) -> bool:
        return bool(low <= effect <= high)

    counts = []
    for rows in blocks(count, CHAIN, problems):
        gained = studies(CHAIN, problems, accuracy, effect, rows, rng).gained
        counts.append(counts_of(gained, CHAIN.seeds))
        for study in gained[: 1_000 - len(held["t"])]:
            cells = list(np.moveaxis(study[0, :, :, 0], 1, 0)[:, :, None] / CHAIN.seeds)
            held["t"].append(holds(*student_t(cells[0])[1:3]))
            held["sign-flip"].append(holds(*sign_flip(cells[0], draws=FLIPS, rng=rng)[1:3]))
            held["4 of t"].append(all(holds(*student_t(cell, level=level)[1:3]) for cell in cells))
            together = max_t.max_t([cells], draws=FLIPS, rng=rng)[0]
            held["4 of max-t"].append(all(holds(*one[1:3]) for one in together))
    every = np.concatenate(counts)
    held["percentile"] = [bool(one) for one in resampled(every, effect, 0.95)]
    joint = resampled(every, effect, level).reshape(-1, CHAIN.family)
    held["4 of percentile"] = [bool(cells.all()) for cells in joint]
    shares = {name: float(np.mean(each)) for name, each in held.items()}
    return Coverage(problems, accuracy, effect, shares | single(problems, accuracy, count, rng))


def resampled(counts: NDArray[np.int64], effect: float, level: float) -> NDArray[np.bool_]:
    """[contrast]: whether the exact bootstrap interval holds `effect`."""
    blocks = (counts[start : start + 1_000] for start in range(0, len(counts), 1_000))
    limits = [bootstrap.exact_limits(block, level=level) for block in blocks]
    return np.concatenate([(each.low <= effect) & (effect <= each.high) for each in limits])


def single(problems: int, accuracy: float, count: int, rng: np.random.Generator) -> dict[str, float]:
    """The intervals for one seed: Newcombe's for pairs, and, without simulation, those of one arm's share."""
    shape = CHAIN._replace(seeds=1)
    effect = detectable(shape, problems, accuracy, 0.8, rng)
    drawn = studies(shape, problems, accuracy, effect, count, rng)
    own, gained = drawn.solved[:, 0, :, 0], drawn.gained[:, 0, :, 0, 0]
    other = own - gained
    pairs = [(own & other), gained > 0, gained < 0, (own | other) == 0]
    tables = np.stack([pair.sum(axis=1) for pair in pairs], axis=1)
    limits = [newcombe_paired(*map(int, each)) for each in tables]
    solved = np.arange(problems + 1)
    chance = stats.binom.pmf(solved, problems, accuracy)
    shares = {"Newcombe, pairs": float(np.mean([low <= effect <= high for low, high in limits]))}
    for name, interval in (("Wilson", wilson), ("Clopper-Pearson", clopper_pearson)):
        ends = [interval(int(each), problems) for each in solved]
        inside = [low <= accuracy <= high for low, high in ends]
        shares[name] = float(chance[inside].sum())
    return shares


def power_curve(problems: int, accuracy: float, count: int, seed: int) -> list[Power]:
    rng = np.random.default_rng([seed, problems, round(100 * accuracy), 2])
    curve = []
    for share in POWERS:
        effect = detectable(CHAIN, problems, accuracy, share, rng)
        counts = np.concatenate(
            [
                counts_of(studies(CHAIN, problems, accuracy, effect, rows, rng).gained, CHAIN.seeds)
                for rows in blocks(count, CHAIN, problems)
            ]
        )
        steps = np.arange(-CHAIN.seeds, CHAIN.seeds + 1) / CHAIN.seeds
        every = counts.sum(axis=0) / counts.sum()
        variance = float(every @ steps**2 - (every @ steps) ** 2) / problems
        found = {method: float((power.p_values(method, counts, DRAWS, rng) <= ALPHA).mean()) for method in METHODS}
        curve.append(Power(problems, accuracy, effect, found, power_at(effect, variance, problems)))
    return curve


def _correlated(pool: ProcessPoolExecutor, sizes: Sequence[int], count: int, seed: int) -> list[tuple[str, str]]:
    """Titles and tables of studies whose answers share what shipped ones do."""
    few = ACCURACIES[:3]  # what holds at a share holds at its opposite; the family of 4 has both
    intervals = min(count // 4, INTERVALS)

    def over(act: Callable[..., Found], accuracies: Sequence[float], studies: int) -> list[Future[Found]]:
        places = [(problems, accuracy) for problems in sizes for accuracy in accuracies]
        return [pool.submit(act, *place, studies, seed) for place in places]

    families = ((CHAIN, ACCURACIES), (RETRIEVAL, few))
    four, many = (over(partial(errors, shape), among, count) for shape, among in families)
    covering, curving = over(coverage, ACCURACIES, intervals), over(power_curve, few[1:], intervals)
    chain, retrieval = [one.result() for one in four], [one.result() for one in many]
    covered, curves = [one.result() for one in covering], [one.result() for one in curving]
    return [
        (
            f"One contrast, 3 seeds, rejections (%) at {ALPHA} and at {ALPHA} / 4, {count} studies",
            errors_table(chain),
        ),
        (
            "4 cells x 3 seeds: any contrast significant (%), and `superior` says CONFIRMED or REFUTED (%)",
            whole_table(chain),
        ),
        ("48 contrasts with one subject, the same", whole_table(retrieval)),
        ("`branch`, 2 models x 2 cells (%)", branch_table(chain)),
        ("Coverage (%) of 95 % intervals at a difference found with power 80 %", coverage_table(covered)),
        ("Power (%)", power_table([one for curve in curves for one in curve])),
    ]


def main(argv: Sequence[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.validity",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--quick", action="store_true", help="a tenth of the studies, two sizes")
    made.add_argument("--grid", action="store_true", help="only the null populations of registering")
    made.add_argument("--seed", type=int, default=20261121, help="of the simulation; default 20261121")
    made.add_argument("--processes", type=int, default=2, help="settings side by side; default 2")
    arguments = made.parse_args(argv)
    count, sizes = (1_000, QUICK_SIZES) if arguments.quick else (10_000, SIZES)
    started = time.perf_counter()
    with ProcessPoolExecutor(arguments.processes) as pool:
        studies, of_grid = (300, GRID[:1]) if arguments.quick else (GRID_STUDIES, GRID)
        grid = [
            pool.submit(null_grid.row, *pair, problems, seeds, studies, arguments.seed)
            for problems, seeds in of_grid
            for pair in null_grid.pairs()
        ]
        titles = [] if arguments.grid else _correlated(pool, sizes, count, arguments.seed)
        rows = [one.result() for one in grid]
    taken = time.perf_counter() - started
    versions = ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy", "statsmodels"))
    print(f"{date.today().isoformat()}; {processor()}, {os.cpu_count()} cores, {platform.system()}; ", end="")
    print(f"python {platform.python_version()}, {versions}.")
    print(f"`{' '.join(['python', '-m', 'benchmarks.validity', *argv])}`: {taken:.0f} s.\n")
    exact_methods = ("t", "restricted-likelihood", "auto", "exact-bootstrap", "sign-flip")
    titles += [
        (
            f"Wrong decisions (%) of each rule and method over the null populations, {studies} studies each",
            null_grid.grid_table(rows),
        ),
        (
            "The most that a test of one seed can reject (%), which does not randomise and holds its level",
            null_grid.attainable_table((200, 300), (ALPHA, ALPHA / 4)),
        ),
        (
            "Coverage (%) of one interval near a ceiling, counted out",
            null_grid.coverage_table(exact_methods, 200, (0.95, 0.9875)),
        ),
    ]
    for title, text in titles:
        print(f"**{title}**\n\n{text}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
