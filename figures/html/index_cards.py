"""The card of a registration on the index page: a badge, the answer, and a small plot of its contrasts."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from figures.canvas.contrasts import counts
from figures.html.markup import Html, element

__all__ = ["STYLE", "Mark", "badge", "marks", "thumbnail"]

STYLE = """
.study { display: grid; grid-template-columns: minmax(0, 1fr) 12rem; column-gap: 2rem; padding: 0.75rem 0;
  border-top: 1px solid var(--line); }
.study h3 { margin: 0.25rem 0 0; }
.study p { margin: 0.25rem 0; }
.study .small { grid-column: 2; grid-row: 1; }
.small svg { display: block; width: 100%; height: auto; }
.small p { font-size: 0.85rem; line-height: 1.35; }
header p { max-width: none; }
.badge { display: inline-flex; vertical-align: text-bottom; align-items: center; gap: 0.4rem;
  font-weight: bold; letter-spacing: 0.03em; }
.badge svg { width: 1.15rem; height: 1.15rem; flex: none; }
@media (max-width: 48rem) {
  .study { grid-template-columns: minmax(0, 1fr); }
  .study .small { grid-column: 1; grid-row: auto; max-width: 16rem; }
}
@media print { .study { break-inside: avoid; } }
"""
INK, PAPER = {"fill": "currentColor"}, {"fill": "none", "stroke": "currentColor", "stroke_width": "2"}
ON = {"fill": "none", "stroke": "var(--paper)", "stroke_width": "2.4"}
# Verdict or state -> the paths of its shape in a square of 20; shapes differ without colour.
SHAPES: Mapping[str, tuple[tuple[str, Mapping[str, str]], ...]] = MappingProxyType(
    {
        "CONFIRMED": (("M10 1a9 9 0 1 1-.01 0z", INK), ("M5.5 10.5l3 3 6-7", ON)),
        "REFUTED": (("M1 1h18v18H1z", INK), ("M6 6l8 8M14 6l-8 8", ON)),
        "INCONCLUSIVE": (("M10 2a8 8 0 1 1-.01 0z", PAPER), ("M6 10h8", PAPER)),
        "SCREENED": (("M10 1l9 9-9 9-9-9z", PAPER), ("M10 6v5M10 13v2", PAPER)),
        "DEVIATED": (("M10 1l9.5 17H.5z", INK), ("M10 7v5M10 14v2", ON)),
        "withdrawn": (("M2 2h16v16H2z", PAPER), ("M2 18L18 2", PAPER)),
        "amended": (("M3 10h11M10 5l5 5-5 5", PAPER),),
        "INVALID": (("M2 2l16 16M18 2L2 18", PAPER),),
    }
)
OPEN = (("M10 2a8 8 0 1 1-.01 0z", PAPER | {"stroke_dasharray": "3 3"}),)  # neither judged nor ended
WIDE, TALL, ROW = 192, 144, 8  # of a thumbnail: width, maximum height, and maximum height of a row


class Mark(NamedTuple):
    """A registered contrast in percentage points. counts: whether it passes the correction with matched
    memory.
    """

    low: float
    difference: float
    high: float
    counts: bool


def marks(judged: Mapping[str, Any]) -> tuple[Mark, ...]:
    """Return the marks of the estimated contrasts, in registered order."""
    return tuple(
        Mark(100 * float(one["low"]), 100 * float(one["difference"]), 100 * float(one["high"]), counts(one))
        for one in judged.get("contrasts", ())
        if one["difference"] is not None
    )


def badge(word: str) -> Html:
    """Render a shape and the word; the shape adds no information to the word."""
    return element(
        "span", _drawn("0 0 20 20", SHAPES.get(word, OPEN), aria_hidden="true"), word, class_="badge"
    )


def thumbnail(shown: Sequence[Mark]) -> Html:
    """Render the intervals of a family, small and without names, pale if they do not count; empty without
    any.
    """
    if not shown:
        return Html("")
    low, high = min(-5.0, *(one.low for one in shown)), max(5.0, *(one.high for one in shown))
    aside = 0.03 * (high - low)
    ends = f"{low:.0f}".replace("-", "\N{MINUS SIGN}"), f"{high:+.0f}"  # no difference is above 100 points
    low, high = low - aside, high + aside
    row = min(ROW, TALL / len(shown))
    tall = row * len(shown)

    def across(value: float) -> str:
        return f"{WIDE * (value - low) / (high - low):.1f}"

    ink = {"stroke": "currentColor", "stroke_linecap": "round"}
    parts = [(f"M{across(0)} 0V{tall:.1f}", ink | {"stroke_width": "1"})]
    for number, one in enumerate(shown):
        at = f"{row * (number + 0.5):.1f}"
        own = ink | ({} if one.counts else {"opacity": "0.45"})
        line = own | {"stroke_width": f"{(0.3 if one.counts else 0.15) * row:.2f}"}
        parts.append((f"M{across(one.low)} {at}H{across(one.high)}", line))
        parts.append((f"M{across(one.difference)} {at}h.01", own | {"stroke_width": f"{0.8 * row:.1f}"}))
    won, lost = (sum(one.counts and sign * one.difference > 0 for one in shown) for sign in (1, -1))
    of = f"{len(shown)} {'contrast' if len(shown) == 1 else 'contrasts'} estimated"
    told = f"{of}: {won} better, {lost} worse, {len(shown) - won - lost} neither"
    drawn = _drawn(f"0 0 {WIDE} {tall:.1f}", parts, role="img", aria_label=told)
    said = f"{told}; {' to '.join(ends)} pp"
    return element("div", drawn, element("p", said, class_="pale"), class_="small")


def _drawn(box: str, paths: Sequence[tuple[str, Mapping[str, str]]], **how: str) -> Html:
    inside = (element("path", d=path, **style) for path, style in paths)
    return element("svg", *inside, viewBox=box, **how)
