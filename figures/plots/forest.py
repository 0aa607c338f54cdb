"""The judged contrasts of a study as a forest plot; a second panel has those that its rule leaves out."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from analysis.rules import RULES
from figures.canvas import numbers, page
from figures.canvas.contrasts import axis, cells, counts, mark, span, untested
from figures.canvas.page import INK, MARGIN, PALE
from figures.canvas.rows import HEAD, ROW, Row, Table, entries, frame, grouped, groups, panel

__all__ = ["forest"]

COLUMNS = {"Δ (pp)": 0.65, "95 % interval": 1.35, "p": 0.75, "n": 0.5, "cache": 0.65}
# The column of comparisons interpolated to equal memory, where there are any, by what counts as memory; and
# what the column "cache" then is.
EQUAL = {"slots": "at equal slots", "bytes": "at equal bytes", "total": "at equal bytes, all"}
HELD = {
    "slots": "mean slots held",
    "bytes": "mean bytes of keys and values",
    "total": "mean bytes, with those of the policy's own state",
}
LETTER, APART, BELOW = 0.26, 0.24, 0.72  # inches: a panel's name, between panels, under the last


def forest(judged: Mapping[str, Any]) -> Figure:
    """One line a contrast; x is the difference in percentage points. All panels have one axis.

    The registered family stands alone, grouped by model, task and budget, or as panel (a), grouped by the two
    arms. (b) has the subject against further arms, corrected over their own number, and after them the
    comparators against those arms, not corrected at all. The marks are those of `contrasts.mark`, each with
    its meaning and the index of its contrast as gid ("point-3", "nominal-3", "simultaneous-3"; in (b)
    "point-beside-3" and "point-auxiliary-3").
    """
    panels, subject = _panels(judged), judged["contrasts"][0]["subject"]
    alone = len(panels) == 1
    single = alone and len({row["subject"] for row in judged["contrasts"]}) == 1
    first, second = (subject, "comparator") if single else ("first arm", "second arm")
    rows = list(itertools.chain(*panels.values()))
    contrasts = [one for _, _, one in entries(rows)]
    equal = any(_equal(one) for one in contrasts)
    by = numbers.matched_by(contrasts)
    framed = frame(rows, COLUMNS | ({EQUAL[by]: 1.15} if equal else {}), plot=4.0)
    letter = 0 if alone else LETTER
    body = ROW * len(rows) + len(panels) * (letter + HEAD + APART) - APART + BELOW
    letters = RULES[judged["rule"]].words.letters(judged)
    title = f"{letters[0]}: {judged['title']}" if letters else judged["title"]
    square = "" if alone else "□ is not tested. "
    saves = any("saves" in one for one in contrasts)
    why = "no memory was saved" if saves else "memory was not matched"
    notes = [
        "Thick line: 95 % interval. Thin line: simultaneous interval of the family. Arrowhead: it goes on.",
        f"◆ passes the correction of its family, ○ does not, ◇ passes but counts for nothing, since {why} "
        f"(†). {square}cache: {HELD[by]}, {first} over {second}.",
    ]
    if equal:
        notes.append(
            f"{EQUAL[by]}: where memory was not matched, against the {second} interpolated between its "
            f"budgets; outside: those budgets do not bracket the {'slots' if by == 'slots' else 'bytes'}. "
            "Decides nothing."
        )
    notes += numbers.scores(contrasts)
    sheet = page.sheet(framed.width, body, title[:1].upper() + title[1:], _heading(judged), notes)
    top = body
    for name, rows in panels.items():
        top -= letter + HEAD + ROW * len(rows)
        drawn = panel(sheet, framed, rows, top)
        drawn.axes.set_xlim(*span(contrasts))
        drawn.axes.tick_params(labelbottom=False)
        style = {"va": "bottom", "weight": "bold", "size": 9.5, "color": INK}
        drawn.axes.text(MARGIN, -1.75, name, transform=drawn.across, **style)
        _contrasts(drawn, rows, by)
        top -= APART
    drawn.axes.tick_params(labelbottom=True)
    axis(drawn, f"{second} better", f"{first} better")
    return sheet.figure


def _panels(judged: Mapping[str, Any]) -> dict[str, list[Row]]:
    """The rows by the name of their panel, which has none where it is the only one."""
    registered = _marked(judged["contrasts"], "")
    if "beside" not in judged:
        several = len({one["subject"] for one in registered}) > 1
        named = lambda one: f"{one['subject']} " * several + f"against {one['against']}"  # noqa: E731
        return {"": grouped(registered, named)}
    apart, method = judged["beside"], judged["method"]
    inside = f"{judged['family']}, {numbers.correction(method, judged)}"
    outside = f"{apart['family']}, {numbers.correction(method, apart)} over these alone"
    return {
        f"(a) Registered contrasts: {inside}": _pairs(registered),
        f"(b) Outside the decision rule: {outside}": [
            *_pairs(_marked(apart["contrasts"], "beside-")),
            *_pairs(_marked(apart["auxiliary"], "auxiliary-"), " (auxiliary, no correction)"),
        ],
    }


def _marked(contrasts: Sequence[Mapping[str, Any]], name: str) -> list[dict[str, Any]]:
    """With what ends their gids, and whether they are tested at all."""
    return [
        {**one, "mark": f"{name}{index}", "tested": name != "auxiliary-"}
        for index, one in enumerate(contrasts)
    ]


def _pairs(contrasts: Sequence[Mapping[str, Any]], what: str = "") -> list[Row]:
    """Headed by the two arms; a pair keeps the order of its contrasts."""
    rows = []
    for pair in dict.fromkeys((one["subject"], one["against"]) for one in contrasts):
        rows.append(Row(f"{pair[0]} \N{MINUS SIGN} {pair[1]}{what}", None))
        rows += [
            Row(f"{one['model']} · {one['task']} · budget {one['budget']}", one)
            for one in contrasts
            if (one["subject"], one["against"]) == pair
        ]
    return rows


def _contrasts(drawn: Table, rows: Sequence[Row], by: str) -> None:
    axes = drawn.axes
    for first, last, _ in groups(rows):
        axes.plot((0, 0), (first + 0.5, last - 0.5), color=INK, linewidth=0.9, zorder=1, gid="zero")
    for y, _, entry in entries(rows):
        if entry["difference"] is None:
            drawn.cells(y, {"95 % interval": "not estimated"}, color=PALE)
            continue
        (mark if entry["tested"] else untested)(axes, y, entry["mark"], entry)
        bold = entry["tested"] and counts(entry)
        drawn.cells(y, cells(entry) | _equal(entry, by), weight="bold" if bold else "normal")
        if not entry["matched"]:
            drawn.dagger(y, "cache")


def _equal(contrast: Mapping[str, Any], by: str = "slots") -> dict[str, str]:
    """What an unmatched contrast would be at equal memory, as a cell; nothing of a matched one. by: what
    counts as memory.
    """
    isocache = contrast.get("isocache")
    if isocache is None or isocache["why"] == "matched":
        return {}
    at_equal = isocache["interpolated"]
    return {
        EQUAL[by]: isocache["why"] if at_equal is None else f"{numbers.points(at_equal['difference'])} pp"
    }


def _heading(judged: Mapping[str, Any]) -> list[str]:
    sentences = [numbers.outcome(judged), f"{numbers.verdict_line(judged)}."]
    if "selected" in judged:
        subject = judged["contrasts"][0]["subject"]
        sentences.append(f"{subject} is {judged['selected']['arm']}, selected on development problems.")
    return sentences
