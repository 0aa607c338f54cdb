"""Makes `analysis/simulation/error_table.json`: how often each method rejects one contrast where nothing differs.

python -m benchmarks.error_table                              # all of it
python -m benchmarks.error_table --methods t sign-flip        # these anew, the others as they are
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np

from analysis.simulation import error_estimate, error_table, type_one_error
from analysis.simulation.error_table import TWO_SIDED, TableGrid
from analysis.stats.methods import EXACT_BELOW

SEED = 20261122
OF = type_one_error.TABULATED  # `auto` for more than EXACT_BELOW problems


def cell(method: str, seeds: int, problems: int) -> list[list[int]]:
    """The worst setting at each level of the grid."""
    rng = np.random.default_rng([SEED, seeds, problems])
    errors = type_one_error.errors_by_kind(method, problems, seeds, TableGrid().levels, rng)
    return table_row([max(of, key=lambda one: one.ratio) for of in zip(*errors, strict=True)])


def table_row(worst: Sequence[error_estimate.TypeOneError]) -> list[list[int]]:
    """Return the table entry of each level."""
    return [
        [
            *(round(error_table.DIGITS * ratio) for ratio in (error.ratio, error.ratio_low, error.ratio_high)),
            error.studies,
            error_table.INDEXED_KINDS.index(
                error.setting._replace(discordance=error_table.INDEXED_KINDS[0].discordance)
            ),
            round(error_table.SHARE_DIGITS * error.setting.discordance),
        ]
        for error in worst
    ]


def main(argv: Sequence[str] | None = None) -> int:
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.error_table",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--methods", nargs="+", choices=OF, default=OF)
    made.add_argument("--processes", type=int, default=2)
    arguments = made.parse_args(sys.argv[1:] if argv is None else argv)
    place, grid, started = error_table.TABLE_PATH, TableGrid(), time.perf_counter()
    table = json.loads(place.read_text(encoding="utf-8")) if place.is_file() else {}
    with ProcessPoolExecutor(arguments.processes) as pool:
        plain = {
            (method, seeds, problems): pool.submit(cell, method, seeds, problems)
            for method in arguments.methods
            for seeds in grid.seeds
            for problems in grid.problems
            if method != "auto" or problems > EXACT_BELOW
        }
        for place_of, one in plain.items():
            _put(table, (TWO_SIDED, *place_of), one.result())
            place.write_text(lines(table), encoding="utf-8")
            print(*place_of, flush=True)
    print(f"{place.name}: {place.stat().st_size} bytes, {time.perf_counter() - started:.0f} s")
    return 0


def _put(table: dict[str, Any], keys: Sequence[str | float], rows: list[list[int]]) -> None:
    *way, last = [key if isinstance(key, str) else f"{key:g}" for key in keys]
    for key in way:
        table = table.setdefault(key, {})
    table[last] = rows


def lines(table: Any) -> str:
    """JSON, a line for each list of rows."""
    if isinstance(table, list):
        return json.dumps(table, separators=(",", ":"))
    return "{" + ",".join(f"\n{json.dumps(key)}:{lines(value)}" for key, value in table.items()) + "}"


if __name__ == "__main__":
    sys.exit(main())
