"""Plot of one trace: its tokens, which of them its answer needed, and what each arm retained of them at the
cut.
"""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, get_font
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from numpy.typing import NDArray

from analysis.anatomy.reading import ORACLE, Trace
from analysis.studies.plain_files import RecordError
from figures.canvas import oracle, page
from figures.canvas.anatomies import Told, readings, standing
from figures.canvas.page import BAND, INK, MARGIN, PALE, WIDEST, inches

__all__ = ["MOST", "Labelled", "Row", "Traced", "anatomy_trace", "printed", "traced"]

BEFORE = 24  # tokens drawn before the first needed one, if not all are drawn
MOST = 240  # tokens drawn of a span, at most; they begin shortly before the first needed one
TEXT, SIZE = 6.2, 6.8  # points, of a token and of the name of a row
ROW, LEAST, ASIDE = 0.125, 0.075, 0.04  # inches: of a row, of a column at least, next to a token
GAP, APART = 0.06, 0.2  # inches: below the labels, between two lines of tokens
BESIDE = (0.46, 0.46, 0.44)  # inches, of the columns at the right
HEADS = ("needed", "others", "answer")
NEEDED = "#d55e00"  # of Okabe & Ito
STEPS = 10  # shades of a share


class Labelled(NamedTuple):
    """needed: by reading, the registered one first, 1 if the answer needed the token; over `pieces`."""

    pieces: Sequence[str]
    first: int  # the position of pieces[0] in the context
    of: int  # tokens of the whole span, which contains these
    needed: Sequence[tuple[str, NDArray[np.int8]]]


class Row(NamedTuple):
    """The tokens that one arm retained: by token the share of (layer, KV head) pairs, 0 to 1. correct: None
    if it failed.

    of_needed, of_others: mean shares over the whole span; NaN without such tokens.
    """

    name: str
    kept: NDArray[np.float64]
    of_needed: float
    of_others: float
    correct: bool | None
    oracle: bool


class Traced(NamedTuple):
    """subtitle: names the trace and the budget."""

    said: str
    labelled: Labelled
    rows: Sequence[Row]


def anatomy_trace(told: Told, found: Traced) -> Figure:
    """Draw the trace. Tokens run to the right and wrap. The gids are "needed-<reading>/<line>" and
    "kept-<name>/<line>"; `<line>` counts lines of tokens from 0.
    """
    labelled, rows = found.labelled, found.rows
    texts = [printed(piece) for piece in labelled.pieces]
    names = [f"needed, {reading}" for reading, _ in labelled.needed] + [row.name for row in rows]
    left = MARGIN + max(inches(name, SIZE, "bold") for name in names) + 0.1
    room = WIDEST - left - MARGIN
    wide = [max(LEAST, inches(text, TEXT) + ASIDE) for text in texts]
    lines = _lines(wide, room, sum(BESIDE) + 0.1)
    block = ROW * (1 + len(labelled.needed) + len(rows)) + 3 * GAP + APART
    body = block * len(lines) + 0.35
    paper = page.sheet(
        WIDEST,
        body,
        "One trace: what its answer needed, and what each arm kept",
        [found.said, *standing(told)],
        [
            "Needed: a window that covers the token was occluded, and the answer's grade changed. A label is "
            "as wide as a window, so that tokens beside a needed one share it. What the text holds twice is "
            "not needed once.",
            "Kept: share of (layer, KV head) pairs that still held the token when the model went on, in "
            f"{STEPS} steps. At the right of the first line: means of these shares over needed and other "
            "tokens of the whole span (registered reading), and whether the answer that followed was "
            "correct. One trace decides nothing.",
            oracle.WARNING,
        ],
    )
    axes = paper.axes(0, 0, WIDEST, body)
    axes.set(xlim=(0, WIDEST), ylim=(body, 0))
    axes.axis("off")
    for number, (start, stop) in enumerate(lines):
        edges = left + np.concatenate([[0.0], np.cumsum(wide[start:stop])])
        top = 0.1 + block * number
        for place, text in enumerate(texts[start:stop]):
            middle = (edges[place] + edges[place + 1]) / 2
            how = {"va": "center_baseline", "ha": "center", "size": TEXT, "color": INK}
            axes.text(middle, top + ROW / 2, text, **how)
        at = f"{labelled.first + start}"
        axes.text(left - 0.07, top + ROW / 2, at, va="center", ha="right", size=6, color=PALE)
        y = top + ROW + GAP
        for order, (reading, needed) in enumerate(labelled.needed):
            _name(axes, left, y, f"needed, {reading}", "bold" if order == 0 else "normal", NEEDED)
            _shades(axes, edges, y, needed[start:stop].astype(float), NEEDED, f"needed-{reading}/{number}")
            y += ROW
        y += GAP
        if number == 0:
            _heads(axes, y, rows)
        for row in rows:
            y += GAP if row.oracle else 0
            colour = oracle.COLOUR if row.oracle else None
            _name(axes, left, y, row.name, "normal", colour or INK)
            _shades(axes, edges, y, row.kept[start:stop], colour, f"kept-{row.name}/{number}")
            if number == 0:
                _beside(axes, y, row)
            y += ROW
    _legend(axes, left, body - 0.13, labelled)
    return paper.figure


def traced(told: Told, model: str | None, problem: str | None, budget: str | None) -> Traced | None:
    """Return the first trace with varying labels, of this model and problem if given, at this or else the
    smallest budget. None if no labels vary.

    Raises RecordError if there is no trace of the requested model, problem or budget.
    """
    anatomy = told.anatomy
    asked = {"model": model, "problem": problem}
    own = [one for one in anatomy.traces if all(asked[name] in (None, getattr(one, name)) for name in asked)]
    varying = [one for one in own if one.windows and 0 < one.labels(anatomy.reading).mean() < 1]
    if not varying and (model or problem):
        states = f", for it ended as {own[0].state}" if len(own) == 1 and not own[0].windows else ""
        raise RecordError(
            f"{', '.join(f'{name} {value}' for name, value in asked.items() if value)}: no trace has labels "
            f"that vary{states}; anatomy/traces.jsonl names models and problems"
        )
    return _traced(told, varying[0], budget) if varying else None


def _traced(told: Told, trace: Trace, budget: str | None) -> Traced:
    slots = {each.budget: each.slots for each in reversed(trace.kept) if each.slots is not None}
    if budget is not None and budget not in slots:
        raise RecordError(f"budget: no arm was asked at {budget!r}; these are there: {', '.join(slots)}")
    budget = budget or min(slots, key=lambda name: slots[name])
    start, stop = trace.span
    labels = {reading: trace.labels(reading) for reading in readings(told.anatomy)}
    needed = labels[told.anatomy.reading] == 1
    shares = trace.values().kept[:, start:stop].astype(np.float64)
    rows = [
        Row(
            oracle.NAME if one.arm == ORACLE else one.arm,
            own,
            float(own[needed].mean()),
            float(own[~needed].mean()),
            one.correct,
            one.arm == ORACLE,
        )
        for one, own in zip(trace.kept, shares, strict=True)
        if one.budget == budget
    ]
    rows.sort(key=lambda row: row.oracle)
    begin = max(0, min(int(np.argmax(needed)) - BEFORE, len(needed) - MOST))
    drawn = slice(begin, begin + MOST)
    labelled = Labelled(
        trace.pieces[start:stop][drawn],
        start + begin,
        len(needed),
        [(reading, one[drawn]) for reading, one in labels.items()],
    )
    rows = [row._replace(kept=row.kept[drawn]) for row in rows]
    said = (
        f"{trace.problem} by {trace.model}, {trace.task}; arms at budget {budget} ({slots[budget]:.4g} slots)"
    )
    return Traced(said, labelled, rows)


def printed(piece: str) -> str:
    """Return a token as it is drawn: without white space at its ends, white space alone as a sign, and
    characters that the font lacks as a box.
    """
    if not piece.strip():
        return "↵" if "\n" in piece else "·"
    known = get_font(findfont(page.FONT)).get_charmap()
    return "".join(sign if ord(sign) in known and sign.isprintable() else "□" for sign in piece.strip())


def _lines(wide: Sequence[float], room: float, first: float) -> list[tuple[int, int]]:
    """Return tokens [start, stop) of each line, as many as fit. first: inches by which the first line is
    shorter.
    """
    starts, used = [0], 0.0
    for place, width in enumerate(wide):
        if used + width > room - (first if len(starts) == 1 else 0) and place > starts[-1]:
            starts.append(place)
            used = 0.0
        used += width
    return list(itertools.pairwise([*starts, len(wide)]))


def _name(axes: Any, left: float, y: float, name: str, weight: str, colour: str) -> None:
    how = {"va": "center", "ha": "right", "size": SIZE, "weight": weight, "color": colour}
    axes.text(left - 0.07, y + ROW / 2, name, **how)


def _shades(
    axes: Any, edges: NDArray[np.float64], y: float, shares: NDArray[np.float64], colour: str | None, gid: str
) -> None:
    """Draw one row: neighbours of one shade are one box, and boxes of one shade are one path."""
    axes.add_patch(_boxes([(edges[0], edges[-1])], y, facecolor=BAND, linewidth=0, gid=gid))
    steps = np.round(STEPS * np.nan_to_num(shares)).astype(int)
    for step in sorted({*steps.tolist()} - {0}):
        at = np.flatnonzero(np.diff(np.concatenate([[0], steps == step, [0]]).astype(int)))
        runs = [(edges[begin], edges[end]) for begin, end in at.reshape(-1, 2)]
        axes.add_patch(_boxes(runs, y, facecolor=_shade(step, colour), linewidth=0))


def _boxes(runs: Sequence[tuple[float, float]], y: float, **how: Any) -> PathPatch:
    up, down = y + 0.012, y + ROW - 0.012
    corners = [[(a, up), (b, up), (b, down), (a, down), (a, up)] for a, b in runs]
    codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY] * len(runs)
    return PathPatch(Path([corner for box in corners for corner in box], codes), **how)


def _shade(step: int, colour: str | None) -> Any:
    if colour is None:
        return matplotlib.colormaps["Blues"](0.1 + 0.82 * step / STEPS)
    full, none = np.array(matplotlib.colors.to_rgb(colour)), np.array(matplotlib.colors.to_rgb(BAND))
    return tuple(none + (full - none) * (0.15 + 0.85 * step / STEPS))


def _heads(axes: Any, y: float, rows: Sequence[Row]) -> None:
    if rows:
        for right, head in zip(_rights(), HEADS, strict=True):
            axes.text(right, y - ROW / 2, head, va="center", ha="right", size=6.2, color=PALE)


def _beside(axes: Any, y: float, row: Row) -> None:
    said = [f"{100 * share:.0f} %" if np.isfinite(share) else "\N{EN DASH}" for share in row[2:4]]
    said.append({True: "correct", False: "wrong", None: "failed"}[row.correct])
    for right, text in zip(_rights(), said, strict=True):
        axes.text(right, y + ROW / 2, text, va="center", ha="right", size=6.2, color=INK)


def _rights() -> list[float]:
    start = WIDEST - MARGIN - sum(BESIDE)
    return list(np.cumsum([start, *BESIDE])[1:])


def _legend(axes: Any, left: float, y: float, labelled: Labelled) -> None:
    x = left
    for name, colour in (("kept by an arm", None), ("by the oracle", oracle.COLOUR)):
        axes.text(x, y, f"{name}: 0", va="center", size=SIZE, color=PALE)
        x += inches(f"{name}: 0", SIZE) + 0.05
        for step in range(STEPS + 1):
            face = BAND if step == 0 else _shade(step, colour)
            axes.add_patch(_boxes([(x, x + 0.09)], y - ROW / 2, facecolor=face, linewidth=0))
            x += 0.09
        axes.text(x + 0.05, y, "1", va="center", size=SIZE, color=PALE)
        x += 0.35
    if labelled.of > len(labelled.pieces):
        shown = f"{len(labelled.pieces)} of the span's {labelled.of} tokens are drawn"
        axes.text(x, y, shown, va="center", size=SIZE, color=PALE)
