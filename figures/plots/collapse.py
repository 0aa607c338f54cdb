"""Extraction collapse: how many of the wrong answers of an arm are no answer at all.

    python -m figures.plots.collapse registrations/alpha-chain

An arm that is wrong because it never came to its answer says little about what its cache kept ("Minimal-
Intervention KV Retention", section 3.2). Writes figures/collapse.svg, .png and .md into the same folder. The
same verdict and records give the same bytes with one version of matplotlib.
Exit status: 0 drawn; 2 there is no verdict to draw, or its records cannot be read.
"""

import itertools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from analysis.studies.study_files import RecordError, read
from figures.canvas import page
from figures.canvas.page import INK, NoVerdict
from figures.canvas.rows import grouped, table
from figures.canvas.shares import Share, share
from figures.command import command

__all__ = ["Ended", "collapse", "draw", "ended", "markdown", "write"]

LIMITS = "95 % limits (Wilson), problems counted and not answers."
COLUMNS = {"wrong": 0.65, "no answer, % of wrong": 1.55, "cut, % of all": 1.55}


class Ended(NamedTuple):
    """How the answers of one arm of a cell ended, all seeds."""

    model: str
    task: str
    budget: str
    arm: str
    wrong: Share
    """Wrong or without an answer, among those with a grade."""
    none: Share
    """Without an answer, among the wrong."""
    cut: Share
    """Stopped by the limit of tokens, among those that were generated."""
    ungraded: int
    """Lanes without a grade: in no share but `cut`, and there only if they were generated."""


def ended(lanes: Any) -> list[Ended]:
    """One entry an arm of a cell, in registered order. lanes: those of `study_files.read`."""
    found = []
    for (model, task, budget), cell in lanes.groupby(["model", "task", "budget"], sort=False):
        for arm, one in cell.groupby("arm", sort=False):
            found.append(Ended(model, task, budget, arm, *_shares(one), int(one["correct"].isna().sum())))
    return found


def _shares(arm: Any) -> tuple[Share, Share, Share]:
    graded, wrong = arm["correct"].notna(), arm["correct"] == 0
    return (
        share(arm, wrong, graded),
        share(arm, arm["grade"] == "no answer", wrong),
        share(arm, arm["stop"] == "length", arm["state"] == "ok"),
    )


def draw(folder: Path) -> tuple[Path, ...]:
    """Draw FOLDER/verdict.json and FOLDER/records into FOLDER/figures.

    Raises NoVerdict and `analysis.studies.study_files.RecordError`, before anything is written.
    """
    folder = Path(folder)
    judged, study = page.judged(folder), read(folder)
    return write(folder / "figures", judged, ended(study.lanes))


def write(target: Path, judged: Mapping[str, Any], cells: Sequence[Ended]) -> tuple[Path, ...]:
    drawn = page.write(target, "collapse", collapse, judged, cells)
    text = target / "collapse.md"
    text.write_text(markdown(judged, cells), encoding="utf-8")
    return (*drawn, text)


def collapse(judged: Mapping[str, Any], cells: Sequence[Ended]) -> Figure:
    """One line an arm, grouped by model, task and budget; x is a share in %. Each artist has its meaning and
    the index of its arm as gid ("none-3", "none-interval-3", "cut-3", "cut-interval-3").
    """
    rows = grouped([one._asdict() for one in cells], lambda one: str(one["arm"]))
    drawn = table(
        rows,
        COLUMNS,
        "Wrong answers that are no answer (exploratory)",
        [page.standing(judged), "Where many are, a cell tells little about what the cache kept."],
        [
            "● of the wrong answers, those without an answer. □ of all answers, those cut at the limit of "
            f"tokens. Lines and brackets: {LIMITS}",
            "wrong: answers that are wrong or missing, all seeds. Answers without a grade are left out.",
        ],
        plot=3.6,
        below=0.5,
    )
    axes, index = drawn.axes, itertools.count()
    axes.set_xlim(-3, 103)
    axes.set_xlabel("share, %")
    for y, row in enumerate(rows):
        if row.entry is None:
            continue
        one, number = row.entry, next(index)
        marks = {"none": ("o", INK, -0.16), "cut": ("s", "white", 0.2)}
        for name, (marker, fill, aside) in marks.items():
            found = one[name]
            if found.of == 0:
                continue
            ends = 100 * found.low, 100 * found.high
            place = (y + aside, y + aside)
            width = 1.5 if name == "none" else 0.8
            axes.plot(ends, place, color=INK, linewidth=width, gid=f"{name}-interval-{number}")
            axes.plot(
                100 * found.share,
                y + aside,
                marker,
                markersize=4.5,
                markerfacecolor=fill,
                markeredgecolor=INK,
                markeredgewidth=0.9,
                gid=f"{name}-{number}",
            )
        drawn.cells(y, dict(zip(COLUMNS, _printed(one["wrong"], one["none"], one["cut"]), strict=True)))
    return drawn.sheet.figure


def _printed(wrong: Share, *shares: Share) -> tuple[str, ...]:
    """The number of wrong answers, then each share and its limits."""
    return (str(wrong.having), *map(_limited, shares))


def _limited(one: Share) -> str:
    if one.of == 0:
        return "\N{EN DASH}"
    share, low, high = (page.percent(value) for value in one[:3])
    return f"{share} [{low}, {high}]"


def markdown(judged: Mapping[str, Any], cells: Sequence[Ended]) -> str:
    """The same as a table of Markdown, with the lanes that have no grade."""
    heads = ["model", "task", "budget", "arm", "graded", *COLUMNS, "without a grade"]
    lines = [heads, ["---"] * 4 + ["---:"] * (len(heads) - 4)]
    for one in cells:
        shown = _printed(one.wrong, one.none, one.cut)
        lines.append([*one[:4], str(one.wrong.of), *shown, str(one.ungraded)])
    rows = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return (
        f"# Wrong answers that are no answer\n\n{page.standing(judged)}\n\n"
        "Exploratory. Counts are answers, all seeds; cut: stopped at the limit of tokens. "
        f"{LIMITS}\n\n{rows}\n"
    )


def main(argv: list[str] | None = None) -> int:
    folder = {"folder": "a confirmed registration, e.g. registrations/alpha-chain"}
    return command("figures.plots.collapse", __doc__, folder, draw, (NoVerdict, RecordError), argv)


if __name__ == "__main__":
    sys.exit(main())
