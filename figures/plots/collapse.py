"""Plot of extraction collapse: the share of an arm's wrong answers that are no answer at all.

An arm that is wrong because it never came to its answer says little about the tokens that its cache retained
("Minimal-Intervention KV Retention", section 3.2).
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from figures.canvas import page
from figures.canvas.page import INK
from figures.canvas.rows import entries, grouped, point, table
from figures.canvas.shares import Share, share

__all__ = ["Ending", "collapse", "endings", "markdown"]

FEWEST = 5  # answers below which a share has no limits: those of one answer would be the longest bar
LIMITS = (
    "95 % limits (Wilson), problems counted and not answers; left out of shares of fewer than "
    f"{FEWEST} answers, which are counts."
)
COLUMNS = {"wrong": 0.65, "no answer, % of wrong": 1.55, "truncated, % of all": 1.55}


class Ending(NamedTuple):
    """How the answers of one arm of a cell ended, all seeds."""

    model: str
    task: str
    budget: str
    arm: str
    wrong: Share
    """Wrong or without an answer, among those with a grade."""
    no_answer: Share
    """Without an answer, among the wrong."""
    truncated: Share
    """Stopped by the limit of tokens, among those that were generated."""
    ungraded: int
    """Lanes without a grade. They count in `truncated` alone, and only if they were generated."""


def endings(lanes: Any) -> list[Ending]:
    """Return one entry for each arm of a cell, in registered order. lanes: those of `study_files.read`."""
    return [
        Ending(model, task, budget, arm, *_shares(own), int(own["correct"].isna().sum()))
        for (model, task, budget), cell in lanes.groupby(["model", "task", "budget"], sort=False)
        for arm, own in cell.groupby("arm", sort=False)
    ]


def _shares(arm: Any) -> tuple[Share, Share, Share]:
    graded, wrong = arm["correct"].notna(), arm["correct"] == 0
    return (
        share(arm, wrong, graded),
        share(arm, arm["grade"] == "no answer", wrong),
        share(arm, arm["stop"] == "length", arm["state"] == "ok"),
    )


def collapse(judged: Mapping[str, Any], cells: Sequence[Ending]) -> Figure:
    """Draw one line for each arm, grouped by model, task and budget; x is a share in %. The gid of each
    artist is its meaning and the index of its arm ("no_answer-3", "no_answer-interval-3"; "truncated-3",
    ...).
    """
    rows = grouped([one._asdict() for one in cells], lambda one: str(one["arm"]))
    drawn = table(
        rows,
        COLUMNS,
        "Wrong answers that are no answer (exploratory)",
        [page.standing(judged), "Where many are, a cell tells little about what the cache kept."],
        [
            "● of the wrong answers, those without an answer. □ of all answers, those truncated at the "
            f"limit of tokens. Lines and brackets: {LIMITS}",
            "wrong: answers that are wrong or missing, all seeds. Answers without a grade are left out.",
        ],
        plot=3.6,
        below=0.5,
    )
    axes = drawn.axes
    axes.set_xlim(-3, 103)
    axes.set_xlabel("share, %")
    marks = {"no_answer": ("o", -0.16, 1.5), "truncated": ("s", 0.2, 0.8)}
    for y, number, one in entries(rows):
        for name, (marker, aside, width) in marks.items():
            found, at = one[name], y + aside
            if found.of == 0:
                continue
            if found.of >= FEWEST:
                ends = 100 * found.low, 100 * found.high
                axes.plot(ends, (at, at), color=INK, linewidth=width, gid=f"{name}-interval-{number}")
            how: dict[str, Any] = {"markersize": 4.5, "markeredgewidth": 0.9, "gid": f"{name}-{number}"}
            point(axes, 100 * found.share, at, marker, filled=name == "no_answer", **how)
        shown = _printed(one["wrong"], one["no_answer"], one["truncated"])
        drawn.cells(y, dict(zip(COLUMNS, shown, strict=True)))
    return drawn.sheet.figure


def _printed(wrong: Share, *shares: Share) -> tuple[str, ...]:
    """Return the number of wrong answers, then each share and its limits."""
    return (str(wrong.having), *map(_limited, shares))


def _limited(one: Share) -> str:
    if one.of == 0:
        return "\N{EN DASH}"
    if one.of < FEWEST:
        return f"{one.having} of {one.of}"
    share, low, high = (page.percent(value) for value in one[:3])
    return f"{share} [{low}, {high}]"


def markdown(judged: Mapping[str, Any], cells: Sequence[Ending]) -> str:
    """Format the same data as a table of Markdown, with the lanes that have no grade."""
    heads = ["model", "task", "budget", "arm", "graded", *COLUMNS, "without a grade"]
    lines = [heads, ["---"] * 4 + ["---:"] * (len(heads) - 4)]
    for one in cells:
        shown = _printed(one.wrong, one.no_answer, one.truncated)
        lines.append([*one[:4], str(one.wrong.of), *shown, str(one.ungraded)])
    rows = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return (
        f"# Wrong answers that are no answer\n\n{page.standing(judged)}\n\n"
        "Exploratory. Counts are answers, all seeds; truncated: stopped at the limit of tokens. "
        f"{LIMITS}\n\n{rows}\n"
    )
