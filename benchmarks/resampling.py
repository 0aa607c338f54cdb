"""What bootstrap intervals cost beside scipy's: 299 problems, 3 seeds, 4 cells, 10,000 draws, percentiles.

scipy gets the call that its documentation gives for paired samples and clusters, once a cell:
`bootstrap((sums, counts), lambda s, c, axis: s.sum(axis) / c.sum(axis), paired=True, vectorized=True,
...)`. Ours are the registered `bootstrap`, and `exact-bootstrap`, the limit of endlessly many draws.

    python -m benchmarks.resampling
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Callable, Sequence
from datetime import date
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from analysis.stats import bootstrap
from benchmarks.pairs import Times, alternate, clocked
from benchmarks.report import at_least, processor, span, table
from benchmarks.simulated import CHAIN, studies

PROBLEMS = 299
DRAWS = 10_000
TARGET = 20.0
SCIPY, DRAWN, EXACT = "scipy, a call a cell", "drawn", "exact"


def main(argv: Sequence[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.resampling",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--repetitions", type=int, default=15, help="default 15")
    arguments = made.parse_args(argv)
    cells = family(np.random.default_rng(0))
    contenders: dict[str, Callable[[], object]] = {
        SCIPY: partial(by_scipy, cells, 1),
        DRAWN: partial(drawn, cells, 1),
        EXACT: partial(exact, cells),
    }
    timed = {name: clocked(act, "cpu") for name, act in contenders.items()}
    times = alternate(timed, arguments.repetitions)
    versions = ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy"))
    print(f"{date.today().isoformat()}; {processor()}, {os.cpu_count()} cores, {platform.system()}; ", end="")
    print(f"python {platform.python_version()}, {versions}.")
    print(f"`{' '.join(['python', '-m', 'benchmarks.resampling', *argv])}`\n")
    print(
        table(
            ["contender", "milliseconds", "scipy's to this", "target", "ends apart (points)"],
            rows(times, cells),
        )
    )
    return 0


def family(rng: np.random.Generator) -> NDArray[np.float64]:
    """[cell, problem, seed] of one study with the correlations of a shipped one, half of the answers right.
    The sums of a problem are put into its first seeds.
    """
    gained = studies(CHAIN, PROBLEMS, 0.5, 0.05, 1, rng).gained[0, 0, :, :, 0].T
    return np.where(np.arange(CHAIN.seeds) < np.abs(gained)[:, :, None], np.sign(gained)[:, :, None], 0.0)


def by_scipy(cells: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """[cell, end]."""
    rng = np.random.default_rng(seed)
    counts = np.full(cells.shape[1], cells.shape[2])

    def share(sums: NDArray[Any], counts: NDArray[Any], axis: int) -> Any:
        return sums.sum(axis) / counts.sum(axis)

    found = [
        stats.bootstrap(
            (cell.sum(axis=1), counts),
            share,
            paired=True,
            vectorized=True,
            n_resamples=DRAWS,
            method="percentile",
            rng=rng,
        ).confidence_interval
        for cell in cells
    ]
    return np.array(found)


def drawn(cells: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    return np.array([bootstrap.paired(cell, reps=DRAWS, rng=rng)[1:3] for cell in cells])


def exact(cells: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.array([bootstrap.exact(cell)[1:3] for cell in cells])


def rows(times: Times, cells: NDArray[np.float64]) -> list[list[str]]:
    """The last column is the largest distance from the mean ends of ten scipy runs; for scipy, of one of
    them.
    """
    ends = np.array([by_scipy(cells, seed) for seed in range(10)])
    apart = {
        SCIPY: ends[0] - ends.mean(axis=0),
        DRAWN: drawn(cells, 1) - ends.mean(axis=0),
        EXACT: exact(cells) - ends.mean(axis=0),
    }
    found = []
    for name, distance in apart.items():
        ratio = times.ratio(SCIPY, name)
        found.append(
            [
                name,
                f"{1000 * times.median(name):.2f}",
                span(ratio, 1),
                at_least(ratio.median, TARGET, "{:.0f}") if name != SCIPY else "",
                f"{100 * np.abs(distance).max():.2f}",
            ]
        )
    return found


if __name__ == "__main__":
    raise SystemExit(main())
