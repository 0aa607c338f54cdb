"""Plot of extraction collapse: the share of an arm's wrong answers that are no answer at all.

An arm that is wrong because it never came to its answer says little about the tokens that its cache retained
("Minimal-Intervention KV Retention", section 3.2).
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from figures.drawing import page
from figures.drawing.page import INK
from figures.drawing.shares import Share, compute_share
from figures.drawing.table_rows import draw_point, draw_table, group_entries, numbered_entries
from protocol.formats.escape import escape_tags

FEWEST = 5  # answers below which a share has no limits: those of one answer would be the longest bar
LIMITS = (
    f"95 % limits (Wilson) over problems, not answers; shares of fewer than {FEWEST} answers are shown "
    "as counts without limits."
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
    "Without an answer, among the wrong ones."
    truncated: Share
    "Stopped at the token limit, among those that were generated."
    ungraded: int
    "Lanes without a grade. They count only in `truncated`, and only if they were generated."


def count_endings(lanes: Any) -> list[Ending]:
    """Return one entry for each arm of a cell, in registered order. lanes: those of `study_files.read`."""
    return [
        Ending(model, task, budget, arm, *_arm_shares(group), int(group["correct"].isna().sum()))
        for (model, task, budget), cell in lanes.groupby(["model", "task", "budget"], sort=False)
        for arm, group in cell.groupby("arm", sort=False)
    ]


def _arm_shares(arm: Any) -> tuple[Share, Share, Share]:
    graded, wrong = arm["correct"].notna(), arm["correct"] == 0
    return (
        compute_share(arm, wrong, graded),
        compute_share(arm, arm["grade"] == "no answer", wrong),
        compute_share(arm, arm["stop"] == "length", arm["state"] == "ok"),
    )


def collapse(judged: Mapping[str, Any], cells: Sequence[Ending]) -> Figure:
    """Draw one line for each arm, grouped by model, task and budget; x is a share in %. The gid of each artist is its
    meaning and the index of its arm ("no_answer-3", "no_answer-interval-3"; "truncated-3", ...).
    """
    rows = group_entries([ending._asdict() for ending in cells], lambda ending: str(ending["arm"]))
    drawn = draw_table(
        rows,
        COLUMNS,
        "Wrong answers that contain no answer (exploratory)",
        [page.study_status(judged), "A cell with many such answers says little about what the cache kept."],
        [
            (
                "● share of wrong answers that contain no answer. □ share of all answers that were truncated "
                f"at the token limit. Lines and brackets: {LIMITS}"
            ),
            ("wrong: answers that are wrong or missing, over all seeds. Answers without a grade are left out."),
        ],
        plot=3.6,
        below=0.5,
    )
    axes = drawn.axes
    axes.set_xlim(-3, 103)
    axes.set_xlabel("share, %")
    marks = {"no_answer": ("o", -0.16, 1.5), "truncated": ("s", 0.2, 0.8)}
    for y, number, ending in numbered_entries(rows):
        for name, (marker, aside, width) in marks.items():
            fraction, position = ending[name], y + aside
            if fraction.n_total == 0:
                continue
            if fraction.n_total >= FEWEST:
                ends = 100 * fraction.low, 100 * fraction.high
                axes.plot(ends, (position, position), color=INK, linewidth=width, gid=f"{name}-interval-{number}")
            style: dict[str, Any] = {"markersize": 4.5, "markeredgewidth": 0.9, "gid": f"{name}-{number}"}
            draw_point(axes, 100 * fraction.share, position, marker, filled=name == "no_answer", **style)
        texts = _format_cells(ending["wrong"], ending["no_answer"], ending["truncated"])
        drawn.print_cells(y, dict(zip(COLUMNS, texts, strict=True)))
    return drawn.sheet.figure


def _format_cells(wrong: Share, *shares: Share) -> tuple[str, ...]:
    """Return the number of wrong answers, then each share and its limits."""
    return (str(wrong.n_matching), *map(_format_share, shares))


def _format_share(fraction: Share) -> str:
    if fraction.n_total == 0:
        return "\N{EN DASH}"
    if fraction.n_total < FEWEST:
        return f"{fraction.n_matching} of {fraction.n_total}"
    share, low, high = (page.format_percent(value) for value in fraction[:3])
    return f"{share} [{low}, {high}]"


def format_markdown(judged: Mapping[str, Any], cells: Sequence[Ending]) -> str:
    """Format the same data as a table of Markdown, with the lanes that have no grade."""
    heads = ["model", "task", "budget", "arm", "graded", *COLUMNS, "without a grade"]
    lines = [heads, ["---"] * 4 + ["---:"] * (len(heads) - 4)]
    for ending in cells:
        texts = _format_cells(ending.wrong, ending.no_answer, ending.truncated)
        lines.append([*ending[:4], str(ending.wrong.n_total), *texts, str(ending.ungraded)])
    rows = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return escape_tags(
        f"# Wrong answers that contain no answer\n\n{page.study_status(judged)}\n\nExploratory. Counts are "
        f"answers over all seeds; truncated: stopped at the token limit. {LIMITS}\n\n{rows}\n"
    )
