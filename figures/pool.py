"""Pool a study with its fresh replications: each contrast over all of them, and one forest plot.

    kv-prereg pool registrations/alpha-chain
    kv-prereg pool registrations/alpha-chain --plot pooled.svg

Reads the study, and in replications/ beside its folder every judged replication on fresh problems that cites its lock
(kv-prereg replicate --fresh); a reproduction has the same problems, and is never pooled. Prints each contrast by
study and pooled: fixed effect, random effects, and (from three studies on) a prediction interval for a further study.
This is an exploratory summary: no rule uses it, and each interval is for one contrast.

Exit status: 0 printed; 2 there is no verdict or no replication, or one is a copy.
"""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from analysis.compare.forest import refuse_other_format, save_drawing
from analysis.exploratory.pooled_replications import PooledStudies, pool_replications
from figures.drawing.table_rows import cell_of
from figures.plots.pooled import pooled_forest
from protocol.formats.reading_command import run_command
from protocol.formats.text_tables import format_columns, format_points


def pool(folder: Path, plot: str | None = None) -> PooledStudies:
    """Pool the study in FOLDER with its replications, and draw them to the file `plot`."""
    if plot is not None:
        refuse_other_format(Path(plot))
    studies = pool_replications(folder)
    if plot is not None:
        save_drawing(Path(plot), pooled_forest, studies)
    return studies


def format_lines(studies: Mapping[str, Any]) -> Iterator[str]:
    """Format `PooledStudies` as plain values."""
    names = ", ".join(studies["studies"])
    yield f"Exploratory summary of {names}. No rule uses it; each interval is for one contrast, uncorrected."
    for contrast in studies["contrasts"]:
        yield ""
        yield f"{'  '.join(cell_of(contrast))}  {contrast['subject']} against {contrast['against']}"
        yield from format_columns(["", "n", "pp", "95 % interval"], _table_rows(contrast))
        if contrast["reason"]:
            yield f"not pooled: {contrast['reason']}"


def _table_rows(contrast: Mapping[str, Any]) -> Iterator[list[str]]:
    for effect in contrast["effects"]:
        yield [effect["study"], str(effect["n"]), *_format_mean(effect["difference"], effect["low"], effect["high"])]
    for label, pooled in (("all", contrast["pooled"]), ("replications alone", contrast["replications"])):
        if pooled is None:
            continue
        for name, mean in (("fixed effect", pooled["fixed"]), ("random effects", pooled["random"])):
            yield [f"{label}, {name}", "", *_format_mean(mean["mean"], mean["low"], mean["high"])]
        if pooled["prediction"] is not None:
            yield [f"{label}, a further study", "", *_format_mean(pooled["random"]["mean"], *pooled["prediction"])]


def _format_mean(*values: str | None) -> tuple[str, str]:
    """Format a mean and its ends in percentage points."""
    mean, low, high = ("not estimated" if value is None else format_points(float(value)) for value in values)
    return mean, f"[{low}, {high}]"


def main(argv: list[str] | None = None) -> int:
    folder = {"folder": "folder of a confirmed registration with replications, e.g. registrations/alpha-chain"}
    options = {"plot": "draw one forest plot of all to this file, .svg or .png"}
    return run_command("pool", __doc__, folder, pool, argv, options=options, text=format_lines)


if __name__ == "__main__":
    sys.exit(main())
