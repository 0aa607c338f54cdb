"""The card of a registration on the index page: a badge, the answer, and a small plot of its contrasts."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from markupsafe import Markup

from figures.drawing.contrasts import is_significant
from figures.report_page.rendering import render
from protocol.formats.text_tables import format_count

FILLED, OUTLINED = {"fill": "currentColor"}, {"fill": "none", "stroke": "currentColor", "stroke-width": "2"}
ON_FILLED = {"fill": "none", "stroke": "var(--paper)", "stroke-width": "2.4"}
# Verdict or state -> the paths of its shape in a square of 20; shapes differ without colour.
SHAPES: Mapping[str, tuple[tuple[str, Mapping[str, str]], ...]] = MappingProxyType(
    {
        "CONFIRMED": (("M10 1a9 9 0 1 1-.01 0z", FILLED), ("M5.5 10.5l3 3 6-7", ON_FILLED)),
        "REFUTED": (("M1 1h18v18H1z", FILLED), ("M6 6l8 8M14 6l-8 8", ON_FILLED)),
        "INCONCLUSIVE": (("M10 2a8 8 0 1 1-.01 0z", OUTLINED), ("M6 10h8", OUTLINED)),
        "SCREENED": (("M10 1l9 9-9 9-9-9z", OUTLINED), ("M10 6v5M10 13v2", OUTLINED)),
        "DEVIATED": (("M10 1l9.5 17H.5z", FILLED), ("M10 7v5M10 14v2", ON_FILLED)),
        "RE-USED": (("M10 2a8 8 0 1 1-.01 0z", OUTLINED), ("M6.5 8h7M6.5 12h7", OUTLINED)),
        "withdrawn": (("M2 2h16v16H2z", OUTLINED), ("M2 18L18 2", OUTLINED)),
        "amended": (("M3 10h11M10 5l5 5-5 5", OUTLINED),),
        "INVALID": (("M2 2l16 16M18 2L2 18", OUTLINED),),
    }
)
UNJUDGED = (("M10 2a8 8 0 1 1-.01 0z", OUTLINED | {"stroke-dasharray": "3 3"}),)  # neither judged nor ended
WIDTH, MAX_HEIGHT, MAX_ROW_HEIGHT = 192, 144, 8  # of a thumbnail: width, maximum height, and maximum height of a row


class ContrastMark(NamedTuple):
    """A registered contrast in percentage points. counts: whether it passes the correction with matched memory."""

    low: float
    difference: float
    high: float
    counts: bool


def contrast_marks(judged: Mapping[str, Any]) -> tuple[ContrastMark, ...]:
    """Return the marks of the estimated contrasts, in registered order."""
    return tuple(
        ContrastMark(
            100 * float(contrast["low"]),
            100 * float(contrast["difference"]),
            100 * float(contrast["high"]),
            is_significant(contrast),
        )
        for contrast in judged.get("contrasts", ())
        if contrast["difference"] is not None
    )


def render_badge(word: str, text: str | None = None) -> Markup:
    """Render the icon of a word, and the word or a text beside it."""
    return render("badge.html", word=word if text is None else text, shapes=SHAPES.get(word, UNJUDGED))


def render_thumbnail(marks: Sequence[ContrastMark]) -> Markup:
    """Render the intervals of a family, small and without names, pale if they do not count; empty without any."""
    if not marks:
        return Markup("")
    low, high = min(-5.0, *(mark.low for mark in marks)), max(5.0, *(mark.high for mark in marks))
    padding = 0.03 * (high - low)
    ends = f"{low:.0f}".replace("-", "\N{MINUS SIGN}"), f"{high:+.0f}"  # no difference is above 100 points
    low, high = low - padding, high + padding
    row_height = min(MAX_ROW_HEIGHT, MAX_HEIGHT / len(marks))
    height = row_height * len(marks)

    def x_position(value: float) -> str:
        return f"{WIDTH * (value - low) / (high - low):.1f}"

    ink = {"stroke": "currentColor", "stroke-linecap": "round"}
    parts = [(f"M{x_position(0)} 0V{height:.1f}", ink | {"stroke-width": "1"})]
    for number, mark in enumerate(marks):
        y = f"{row_height * (number + 0.5):.1f}"
        mark_style = ink | ({} if mark.counts else {"opacity": "0.45"})
        line = mark_style | {"stroke-width": f"{(0.3 if mark.counts else 0.15) * row_height:.2f}"}
        parts.append((f"M{x_position(mark.low)} {y}H{x_position(mark.high)}", line))
        parts.append(
            (f"M{x_position(mark.difference)} {y}h.01", mark_style | {"stroke-width": f"{0.8 * row_height:.1f}"})
        )
    won, lost = (sum(mark.counts and sign * mark.difference > 0 for mark in marks) for sign in (1, -1))
    outcomes = f"{won} better, {lost} worse, {len(marks) - won - lost} neither"
    summary = f"{format_count(len(marks), 'contrast')} estimated: {outcomes}"
    return render(
        "thumbnail.html", width=WIDTH, height=f"{height:.1f}", summary=summary, paths=parts, ends=" to ".join(ends)
    )
