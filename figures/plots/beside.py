"""Two panels of one forest: the registered contrasts, and those that the decision rule leaves out."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation, blended_transform_factory

from figures.canvas import numbers, page
from figures.canvas.contrasts import cells, counts, in_points, mark, span
from figures.canvas.page import INK, MARGIN, PALE, Sheet
from figures.canvas.rows import HEAD, ROW, Frame, Row, Table, frame, groups, panel

__all__ = ["beside"]

COLUMNS = {"Δ (pp)": 0.65, "95 % interval": 1.35, "p": 0.75, "n": 0.5, "cache": 0.65}
EQUAL = "at equal slots"  # the column of comparisons interpolated to equal memory, where there are any
LETTER, APART, BELOW = 0.26, 0.24, 0.72  # inches: a panel's name, between panels, under the last


def beside(judged: Mapping[str, Any]) -> Figure:
    """One line a contrast, grouped by the two arms; both panels have one axis and the same columns.

    (a) is the registered family. (b) has the subject against further arms, at the Bonferroni level of their
    own number, and after them the comparators against those arms, at no level at all. The gids are those of
    `figures.forest` in (a), and "point-beside-3" and "point-auxiliary-3" with the index in (b).
    """
    apart = judged["beside"]
    everything = [*judged["contrasts"], *apart["contrasts"], *apart["auxiliary"]]
    own, level = numbers.level(apart["corrected_alpha"]), numbers.level(judged["corrected_alpha"])
    registered = f"(a) Registered contrasts: {judged['family']}, Bonferroni {level}"
    outside = f"(b) Outside the decision rule: {apart['family']}, Bonferroni {own} over these alone"
    panels = {
        registered: _rows(judged["contrasts"], ""),
        outside: [
            *_rows(apart["contrasts"], "beside-"),
            *_rows(apart["auxiliary"], "auxiliary-", " (auxiliary, no correction)"),
        ],
    }
    rows = [row for rows in panels.values() for row in rows]
    equal = any(_equal(one) for one in everything)
    framed = frame(rows, COLUMNS | ({EQUAL: 1.15} if equal else {}), plot=4.0)
    body = ROW * len(rows) + len(panels) * (LETTER + HEAD) + APART + BELOW
    sheet = page.sheet(framed.width, body, *_said(judged), _notes(equal))
    top = body
    for name, rows in panels.items():
        top -= LETTER + HEAD + ROW * len(rows)
        drawn = panel(sheet, framed, rows, top)
        drawn.axes.set_xlim(*span(everything))
        _panel(drawn, framed, name, rows)
        drawn.axes.tick_params(labelbottom=name == outside)
        top -= APART
    _axis(sheet, drawn)
    return sheet.figure


def _rows(contrasts: Sequence[Mapping[str, Any]], name: str, what: str = "") -> list[Row]:
    """Headed by the two arms; a pair keeps the order of its contrasts. name: of their marks."""
    rows = []
    for pair in dict.fromkeys((one["subject"], one["against"]) for one in contrasts):
        rows.append(Row(f"{pair[0]} \N{MINUS SIGN} {pair[1]}{what}", None))
        rows += [
            Row(
                f"{one['model']} · {one['task']} · budget {one['budget']}",
                {**one, "mark": f"{name}{index}", "tested": name != "auxiliary-"},
            )
            for index, one in enumerate(contrasts)
            if (one["subject"], one["against"]) == pair
        ]
    return rows


def _panel(drawn: Table, framed: Frame, name: str, rows: Sequence[Row]) -> None:
    axes = drawn.axes
    axes.text(MARGIN, -1.75, name, transform=drawn.across, va="bottom", weight="bold", size=9.5, color=INK)
    for first, last, _ in groups(rows):
        axes.plot((0, 0), (first + 0.5, last - 0.5), color=INK, linewidth=0.9, zorder=1, gid="zero")
    for y, row in enumerate(rows):
        one = row.entry
        if one is None:
            continue
        if one["difference"] is None:
            drawn.cells(y, {"95 % interval": "not estimated"}, color=PALE)
            continue
        if one["tested"]:
            mark(axes, y, one["mark"], one)
        else:
            _untested(axes, y, one)
        bold = one["tested"] and counts(one)
        drawn.cells(y, cells(one) | _equal(one), weight="bold" if bold else "normal")
        if not one["matched"]:
            axes.text(framed.columns["cache"] + 0.03, y, "†", transform=drawn.across, va="center", color=INK)
    in_points(axes)


def _untested(axes: Any, y: int, one: Mapping[str, Any]) -> None:
    ends = [100 * float(one[end]) for end in ("low", "high")]
    axes.plot(
        ends, (y, y), color=PALE, linewidth=1.6, solid_capstyle="butt", zorder=2, gid=f"nominal-{one['mark']}"
    )
    axes.plot(
        100 * float(one["difference"]),
        y,
        "s",
        markersize=5,
        markerfacecolor="white",
        markeredgecolor=PALE,
        zorder=4,
        gid=f"point-{one['mark']}",
    )


def _axis(sheet: Sheet, drawn: Table) -> None:
    """The label of the common axis, and which side is whose."""
    axes = drawn.axes
    axes.set_xlabel("accuracy difference, percentage points", labelpad=20)
    under = axes.transAxes + ScaledTranslation(0, -0.36, sheet.figure.dpi_scale_trans)
    below = blended_transform_factory(axes.transData, under)
    for text, side in (("← second arm better   ", "right"), ("   first arm better →", "left")):
        axes.text(0, 0, text, transform=below, va="center", ha=side, color=INK)


def _equal(one: Mapping[str, Any]) -> dict[str, str]:
    """What an unmatched contrast would be at equal memory, as a cell; nothing of a matched one."""
    held = one.get("isocache")
    if held is None or held["why"] == "matched":
        return {}
    found = held["interpolated"]
    return {EQUAL: held["why"] if found is None else f"{numbers.points(found['difference'])} pp"}


def _said(judged: Mapping[str, Any]) -> tuple[str, list[str]]:
    branch, subject = judged["branch"], judged["contrasts"][0]["subject"]
    said = [numbers.outcome(judged), f"{numbers.verdict_line(judged)}."]
    if "selected" in judged:
        said.append(f"{subject} is {judged['selected']['arm']}, selected on development problems.")
    return f"Branch {branch['registered']}: {judged['title']}" if branch else judged["title"], said


def _notes(equal: bool) -> list[str]:
    notes = [
        "Thick line: 95 % interval. Thin line: simultaneous interval of the panel. Arrowhead: it goes on.",
        "◆ passes the Bonferroni level of its panel, ○ does not, ◇ passes but counts for nothing, since "
        "memory was not matched (†). □ is not tested. cache: mean slots held, first arm over second.",
    ]
    if equal:
        notes.append(
            f"{EQUAL}: where memory was not matched, against the second arm interpolated between its budgets "
            "to the slots of the first; outside: those budgets do not bracket them. Decides nothing."
        )
    return notes
