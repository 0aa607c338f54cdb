"""Plot of divergence from the full cache along its text: a row for each model, task and budget, a line for each arm."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from analysis.judgement import untrusted_files
from figures.drawing import page
from figures.drawing.line_styles import styles
from figures.drawing.page import INK, MARGIN

BINS = 20  # of positions, at most
MILLION = 1_000_000  # millionths of a nat in a nat
PLOT, HIGH, LEFT, TOP, BELOW = 3.2, 1.9, 0.75, 0.32, 0.5  # inches
LEGEND = 0.2  # inches, of a line


class ArmDivergence(NamedTuple):
    """How an arm of a cell differs from the full cache, by bin of positions, over all lanes that are as long.

    positions: the middle of each bin. differs: share of positions at which the arm would have said another token.
    nats: mean KL(full cache || arm).
    """

    cell: tuple[str, str, str]  # model, task, budget
    arm: str
    positions: NDArray[np.float64]
    differs: NDArray[np.float64]
    nats: NDArray[np.float64]


def read_divergences(folder: Path, lock: Mapping[str, Any]) -> list[ArmDivergence]:
    """Return the arms of a study whose confirm records have a divergence, in registered order."""
    if "outcome" not in lock["protocol"]["content"]:
        return []
    lanes: dict[tuple[str, ...], list[NDArray[np.float64]]] = {tuple(cell[:4]): [] for cell in lock["grid"]}
    for body in untrusted_files.read_bodies(Path(folder) / "records"):
        if body["phase"] == "confirm" and (divergence := body.get("divergence")):
            cell = tuple(body["cell"][name] for name in ("model", "task", "budget", "arm"))
            differs = [digit == "0" for digit in divergence["agrees"]]
            lanes[cell].append(np.array([differs, divergence["nats"]], dtype=np.float64))
    longest: dict[tuple[str, ...], int] = {}
    for cell, values in lanes.items():
        longest[cell[:2]] = max([longest.get(cell[:2], 0), *(value.shape[1] for value in values)])
    return [_bin_positions(cell, values, longest[cell[:2]]) for cell, values in lanes.items() if values]


def _bin_positions(cell: tuple[str, ...], lanes: Sequence[NDArray[np.float64]], longest: int) -> ArmDivergence:
    width = -(-longest // BINS)
    sums, counts = np.zeros((2, -(-longest // width))), np.zeros(-(-longest // width))
    for values in lanes:
        bins = np.arange(values.shape[1]) // width
        np.add.at(counts, bins, 1)
        for total, row in zip(sums, values, strict=True):
            np.add.at(total, bins, row)
    differs, nats = sums / np.where(counts, counts, np.nan)  # no lane of the arm may be so long, where some failed
    middles = np.minimum(np.arange(len(counts)) * width + (width + 1) / 2, longest)
    return ArmDivergence((cell[0], cell[1], cell[2]), cell[3], middles, differs, nats / MILLION)


def divergence(judged: Mapping[str, Any], arms: Sequence[ArmDivergence]) -> Figure:
    """Draw the rows: left the share of other tokens, right the nats. The gids of lines are
    "differs-<model>/<task>/<budget>/<arm>" and "nats-...".
    """
    cells = list(dict.fromkeys(entry.cell for entry in arms))
    names = list(dict.fromkeys(entry.arm for entry in arms))
    style, subject = styles(names), judged["contrasts"][0]["subject"]
    block, legend = TOP + HIGH + BELOW, LEGEND * len(names) + 0.1
    sheet = page.new_sheet(
        2 * MARGIN + 2 * (LEFT + PLOT),
        block * len(cells) + legend,
        "Divergence from the full cache along its text (exploratory)",
        [page.study_status(judged), "Every arm is fed the full cache's text, and evicts as usual."],
        [
            (
                "Means over all lanes of at least this length, for up to 20 segments of positions. Left: share "
                "of positions at which the arm would have chosen another token. Right: KL(full cache || arm) "
                "of the next token, at temperature 1."
            )
        ],
    )
    for number, cell in enumerate(cells):
        bottom = legend + block * (len(cells) - 1 - number) + BELOW
        for column, (kind, label, scale) in enumerate((("differs", "other tokens, %", 100.0), ("nats", "nats", 1.0))):
            axes = sheet.add_axes(MARGIN + LEFT + column * (LEFT + PLOT), bottom, PLOT, HIGH)
            for entry in (entry for entry in arms if entry.cell == cell):
                front = {"linewidth": 2.2, "zorder": 4} if entry.arm == subject else {"linewidth": 1.2}
                gid = f"{kind}-{'/'.join(cell)}/{entry.arm}"
                values = scale * getattr(entry, kind)
                axes.plot(entry.positions, values, markersize=3, gid=gid, **style[entry.arm], **front)
            axes.set_ylim(bottom=0)
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")  # a power of ten above would meet the title
            axes.set_ylabel(label)
            axes.set_xlabel("position in the answer" if number == len(cells) - 1 else "")
            axes.grid(axis="y", color=INK, alpha=0.12, linewidth=0.6)
            axes.spines[["right", "top"]].set_visible(False)
            if not column:
                title = f"{cell[0]} · {cell[1]} · budget {cell[2]}"
                axes.set_title(title, loc="left", size=8.5, weight="bold")
    sheet.add_legend([axes.plot([], [], markersize=5, label=name, **style[name])[0] for name in names])
    return sheet.figure
