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

from analysis.judgement.untrusted_files import RecordError
from figures.drawing import page
from figures.drawing.page import BAND, INK, MARGIN, PALE, WIDEST, text_width
from protocol.instruments.anatomy.analysis import data_flow, slip_test
from protocol.instruments.anatomy.analysis.agreement import select_varying
from protocol.instruments.anatomy.analysis.traces import Trace
from protocol.instruments.anatomy.drawings import oracle_style
from protocol.instruments.anatomy.drawings.trace_report import AnatomyReport, ordered_readings, status_lines
from protocol.instruments.anatomy.fields import ORACLE

BEFORE = 24  # tokens drawn before the first needed one, if not all are drawn
MOST = 240  # tokens drawn of a span, at most; they begin shortly before the first needed one
TEXT, SIZE = 6.2, 6.8  # points, of a token and of the name of a row
ROW, LEAST, ASIDE = 0.125, 0.075, 0.04  # inches: of a row, of a column at least, next to a token
GAP, APART = 0.06, 0.2  # inches: below the labels, between two lines of tokens
COLUMN_WIDTHS = (0.46, 0.46, 0.44)  # inches, of the columns at the right
HEADS = ("needed", "others", "answer")
NEEDED = "#d55e00"  # of Okabe & Ito
EXACT = " Data flow: the task knows that a word after the cut is computed from this token."
SETS = " CrystalKV, SlipKV: the tokens of the thought that the answer attends to most and least."
SET_NAMES = {"top": "CrystalKV", "bottom": "SlipKV"}
STEPS = 10  # shades of a share


class Labelled(NamedTuple):
    """needed: by reading, the registered one first, 1 if the answer needed the token; over `pieces`. Then by the flow
    of data, where the task knows it, and of CrystalKV and SlipKV, where they are registered, 1 if it is of these.
    """

    pieces: Sequence[str]
    first: int  # the position of pieces[0] in the context
    span_tokens: int  # tokens of the whole span, which contains these
    needed: Sequence[tuple[str, NDArray[np.int8]]]


class ArmRow(NamedTuple):
    """The tokens that one arm retained: by token the share of (layer, KV head) pairs, 0 to 1. correct: None
    if it failed.

    of_needed, of_others: mean shares over the whole span; NaN without such tokens.
    """

    name: str
    retained: NDArray[np.float64]
    of_needed: float
    of_others: float
    correct: bool | None
    oracle: bool


class TraceView(NamedTuple):
    """subtitle: names the trace and the budget."""

    subtitle: str
    labelled: Labelled
    rows: Sequence[ArmRow]


def anatomy_trace(study: AnatomyReport, view: TraceView) -> Figure:
    """Draw the trace. Tokens run to the right and wrap. The gids are "needed-<reading>/<line>" and
    "kept-<name>/<line>"; `<line>` counts lines of tokens from 0.
    """
    labelled, rows = view.labelled, view.rows
    texts = [printable_token(piece) for piece in labelled.pieces]
    names = [row_name(reading) for reading, _ in labelled.needed] + [row.name for row in rows]
    left = MARGIN + max(text_width(name, SIZE, "bold") for name in names) + 0.1
    room = WIDEST - left - MARGIN
    wide = [max(LEAST, text_width(text, TEXT) + ASIDE) for text in texts]
    lines = _break_lines(wide, room, sum(COLUMN_WIDTHS) + 0.1)
    block = ROW * (1 + len(labelled.needed) + len(rows)) + 3 * GAP + APART
    body = block * len(lines) + 0.35
    paper = page.new_sheet(
        WIDEST,
        body,
        "One trace: what its answer needed, and what each arm kept",
        [view.subtitle, *status_lines(study)],
        [
            "Needed: a window that covers the token was occluded, and the answer's grade changed. A label is "
            "as wide as a window, so neighbours of a needed token share its label. Where the text contains a "
            "token twice, neither may be needed."
            + EXACT * any(reading == data_flow.NAME for reading, _ in labelled.needed)
            + SETS * any(reading in SET_NAMES.values() for reading, _ in labelled.needed),
            "Kept: share of (layer, KV head) pairs that still held the token when the model continued, in "
            f"{STEPS} steps. To the right of the first line: means of these shares over needed and over other "
            "tokens of the whole span (registered reading), and whether the answer that followed was "
            "correct. Nothing may be concluded from one trace.",
            oracle_style.WARNING,
        ],
    )
    axes = paper.add_axes(0, 0, WIDEST, body)
    axes.set(xlim=(0, WIDEST), ylim=(body, 0))
    axes.axis("off")
    for number, (start, stop) in enumerate(lines):
        edges = left + np.concatenate([[0.0], np.cumsum(wide[start:stop])])
        top = 0.1 + block * number
        for index, text in enumerate(texts[start:stop]):
            middle = (edges[index] + edges[index + 1]) / 2
            style = {"va": "center_baseline", "ha": "center", "size": TEXT, "color": INK}
            axes.text(middle, top + ROW / 2, text, **style)
        label = f"{labelled.first + start}"
        axes.text(left - 0.07, top + ROW / 2, label, va="center", ha="right", size=6, color=PALE)
        y = top + ROW + GAP
        for order, (reading, needed) in enumerate(labelled.needed):
            _draw_name(axes, left, y, row_name(reading), "bold" if order == 0 else "normal", NEEDED)
            _draw_shades(axes, edges, y, needed[start:stop].astype(float), NEEDED, f"needed-{reading}/{number}")
            y += ROW
        y += GAP
        if number == 0:
            _draw_heads(axes, y, rows)
        for row in rows:
            y += GAP if row.oracle else 0
            colour = oracle_style.COLOUR if row.oracle else None
            _draw_name(axes, left, y, row.name, "normal", colour or INK)
            _draw_shades(axes, edges, y, row.retained[start:stop], colour, f"kept-{row.name}/{number}")
            if number == 0:
                _draw_summary(axes, y, row)
            y += ROW
    _draw_legend(axes, left, body - 0.13, labelled)
    return paper.figure


def select_trace(study: AnatomyReport, model: str | None, problem: str | None, budget: str | None) -> TraceView | None:
    """Return the first trace with varying labels, of this model and problem if given, at this or else the
    smallest budget. None if no labels vary.

    Raises RecordError if there is no trace of the requested model, problem or budget.
    """
    anatomy = study.anatomy
    requested = {"model": model, "problem": problem}
    candidates = [
        trace for trace in anatomy.traces if all(requested[name] in (None, getattr(trace, name)) for name in requested)
    ]
    varying = select_varying(candidates, anatomy.reading)
    if not varying and (model or problem):
        is_unlabelled = len(candidates) == 1 and not candidates[0].windows
        states = f", since it ended as {candidates[0].state}" if is_unlabelled else ""
        raise RecordError(
            f"{', '.join(f'{name} {value}' for name, value in requested.items() if value)}: no trace has labels "
            f"that vary{states}; anatomy/traces.jsonl names models and problems"
        )
    return _build_view(study, varying[0], budget) if varying else None


def _build_view(study: AnatomyReport, trace: Trace, budget: str | None) -> TraceView:
    slots = {outcome.budget: outcome.slots for outcome in reversed(trace.outcomes) if outcome.slots is not None}
    if budget is not None and budget not in slots:
        raise RecordError(f"budget: no arm was run at {budget!r}; there are: {', '.join(slots)}")
    budget = budget or min(slots, key=lambda name: slots[name])
    start, stop = trace.span
    labels = {reading: trace.labels(reading) for reading in ordered_readings(study.anatomy)}
    if (exact := data_flow.exact_labels(trace)) is not None:
        labels[data_flow.NAME] = exact
    labels |= {SET_NAMES[name]: label for name, label in slip_test.slip_labels(study.anatomy, trace).items()}
    needed = labels[study.anatomy.reading] == 1
    shares = trace.values().retained[:, start:stop].astype(np.float64)
    rows = [
        ArmRow(
            oracle_style.NAME if item.arm == ORACLE else item.arm,
            share_row,
            float(share_row[needed].mean()),
            float(share_row[~needed].mean()),
            item.correct,
            item.arm == ORACLE,
        )
        for item, share_row in zip(trace.outcomes, shares, strict=True)
        if item.budget == budget
    ]
    rows.sort(key=lambda row: row.oracle)
    begin = max(0, min(int(np.argmax(needed)) - BEFORE, len(needed) - MOST))
    drawn = slice(begin, begin + MOST)
    drawn_labels = [(reading, item[drawn]) for reading, item in labels.items()]
    labelled = Labelled(trace.pieces[start:stop][drawn], start + begin, len(needed), drawn_labels)
    rows = [row._replace(retained=row.retained[drawn]) for row in rows]
    subtitle = f"{trace.problem} by {trace.model}, {trace.task}; arms at budget {budget} ({slots[budget]:.4g} slots)"
    return TraceView(subtitle, labelled, rows)


def row_name(reading: str) -> str:
    return reading if reading in SET_NAMES.values() else f"needed, {reading}"


def printable_token(piece: str) -> str:
    """Return a token as it is drawn: stripped; white space alone as a sign, a character without glyph as a box."""
    if not piece.strip():
        return "↵" if "\n" in piece else "·"
    charmap = get_font(findfont(page.FONT)).get_charmap()
    return "".join(
        character if ord(character) in charmap and character.isprintable() else "□" for character in piece.strip()
    )


def _break_lines(widths: Sequence[float], room: float, first: float) -> list[tuple[int, int]]:
    """Return tokens [start, stop) of each line, as many as fit. first: inches by which the first line is shorter."""
    starts, filled = [0], 0.0
    for index, width in enumerate(widths):
        if filled + width > room - (first if len(starts) == 1 else 0) and index > starts[-1]:
            starts.append(index)
            filled = 0.0
        filled += width
    return list(itertools.pairwise([*starts, len(widths)]))


def _draw_name(axes: Any, left: float, y: float, name: str, weight: str, colour: str) -> None:
    style = {"va": "center", "ha": "right", "size": SIZE, "weight": weight, "color": colour}
    axes.text(left - 0.07, y + ROW / 2, name, **style)


def _draw_shades(
    axes: Any, edges: NDArray[np.float64], y: float, shares: NDArray[np.float64], colour: str | None, gid: str
) -> None:
    """Draw one row: neighbours of one shade are one box, and boxes of one shade are one path."""
    axes.add_patch(_box_patch([(edges[0], edges[-1])], y, facecolor=BAND, linewidth=0, gid=gid))
    steps = np.round(STEPS * np.nan_to_num(shares)).astype(int)
    for step in sorted({*steps.tolist()} - {0}):
        bounds = np.flatnonzero(np.diff(np.concatenate([[0], steps == step, [0]]).astype(int)))
        runs = [(edges[begin], edges[end]) for begin, end in bounds.reshape(-1, 2)]
        axes.add_patch(_box_patch(runs, y, facecolor=_shade(step, colour), linewidth=0))


def _box_patch(runs: Sequence[tuple[float, float]], y: float, **how: Any) -> PathPatch:
    up, down = y + 0.012, y + ROW - 0.012
    corners = [[(a, up), (b, up), (b, down), (a, down), (a, up)] for a, b in runs]
    codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY] * len(runs)
    return PathPatch(Path([corner for box in corners for corner in box], codes), **how)


def _shade(step: int, colour: str | None) -> Any:
    if colour is None:
        return matplotlib.colormaps["Blues"](0.1 + 0.82 * step / STEPS)
    full, none = np.array(matplotlib.colors.to_rgb(colour)), np.array(matplotlib.colors.to_rgb(BAND))
    return tuple(none + (full - none) * (0.15 + 0.85 * step / STEPS))


def _draw_heads(axes: Any, y: float, rows: Sequence[ArmRow]) -> None:
    if rows:
        for right, head in zip(_column_edges(), HEADS, strict=True):
            axes.text(right, y - ROW / 2, head, va="center", ha="right", size=6.2, color=PALE)


def _draw_summary(axes: Any, y: float, row: ArmRow) -> None:
    texts = [f"{100 * share:.0f} %" if np.isfinite(share) else "\N{EN DASH}" for share in row[2:4]]
    texts.append({True: "correct", False: "wrong", None: "failed"}[row.correct])
    for right, text in zip(_column_edges(), texts, strict=True):
        axes.text(right, y + ROW / 2, text, va="center", ha="right", size=6.2, color=INK)


def _column_edges() -> list[float]:
    start = WIDEST - MARGIN - sum(COLUMN_WIDTHS)
    return list(np.cumsum([start, *COLUMN_WIDTHS])[1:])


def _draw_legend(axes: Any, left: float, y: float, labelled: Labelled) -> None:
    x = left
    for name, colour in (("kept by an arm", None), ("by the oracle", oracle_style.COLOUR)):
        axes.text(x, y, f"{name}: 0", va="center", size=SIZE, color=PALE)
        x += text_width(f"{name}: 0", SIZE) + 0.05
        for step in range(STEPS + 1):
            face = BAND if step == 0 else _shade(step, colour)
            axes.add_patch(_box_patch([(x, x + 0.09)], y - ROW / 2, facecolor=face, linewidth=0))
            x += 0.09
        axes.text(x + 0.05, y, "1", va="center", size=SIZE, color=PALE)
        x += 0.35
    if labelled.span_tokens > len(labelled.pieces):
        text = f"{len(labelled.pieces)} of the span's {labelled.span_tokens} tokens are drawn"
        axes.text(x, y, text, va="center", size=SIZE, color=PALE)
