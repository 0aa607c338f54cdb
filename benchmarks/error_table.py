"""Makes `analysis/trial/error_table.json`: how often each method rejects one contrast where nothing differs.

python -m benchmarks.error_table                              # every method, 15 minutes
python -m benchmarks.error_table --methods t sign-flip        # these anew, the others as they are
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from analysis.stats.methods import METHODS
from analysis.trial import error_table, type_one
from analysis.trial.error_table import SAME, Grid

SEED = 20261122
OF = tuple(method for method in METHODS if method not in SAME)


def cell(method: str, seeds: int, problems: int) -> list[list[int]]:
    """The worst setting at each level of the grid."""
    rng = np.random.default_rng([SEED, seeds, problems])
    found = type_one.over_settings(method, problems, seeds, Grid().levels, rng)
    return error_table.row([max(of, key=lambda one: one.ratio) for of in zip(*found, strict=True)])


def main(argv: Sequence[str] | None = None) -> int:
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.error_table",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--methods", nargs="+", choices=OF, default=OF)
    made.add_argument("--processes", type=int, default=2)
    arguments = made.parse_args(sys.argv[1:] if argv is None else argv)
    place = error_table.PLACE
    table = json.loads(place.read_text(encoding="utf-8")) if place.is_file() else {}
    grid, started = Grid(), time.process_time()
    with ProcessPoolExecutor(arguments.processes) as pool:
        found = {
            (method, seeds, problems): pool.submit(cell, method, seeds, problems)
            for method in arguments.methods
            for seeds in grid.seeds
            for problems in grid.problems
        }
        for (method, seeds, problems), future in found.items():
            table.setdefault(method, {}).setdefault(str(seeds), {})[str(problems)] = future.result()
            print(f"{method}, {seeds} seeds, {problems} problems", flush=True)
    written = {method: table[method] for method in OF if method in table}
    place.write_text(lines(written), encoding="utf-8")
    print(f"{place.name}: {place.stat().st_size} bytes, {time.process_time() - started:.0f} s here")
    return 0


def lines(table: dict[str, dict[str, dict[str, list[list[int]]]]]) -> str:
    """JSON with a line for each method, seeds and problems."""
    rows = [
        f'"{method}":{{'
        + ",".join(
            f'\n"{seeds}":{{'
            + ",".join(
                f'\n"{problems}":{json.dumps(row, separators=(",", ":"))}' for problems, row in sizes.items()
            )
            + "}"
            for seeds, sizes in of.items()
        )
        + "}"
        for method, of in table.items()
    ]
    return "{" + ",\n".join(rows) + "}\n"


if __name__ == "__main__":
    sys.exit(main())
