"""The registered contrasts of a report: a forest plot whose rows open to show the discordant answers.

It has the numbers and marks of `figures.plots.forest`, and adapts to the width and colours of the screen.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from protocol.evidence.bytes.shown import shown
from figures.canvas import numbers
from figures.canvas.contrasts import counts, margins, span
from figures.canvas.rows import place
from figures.html.broken import Behind
from figures.html.markup import Html, element, sentences

__all__ = ["forest"]

Row: TypeAlias = Mapping[str, Any]
BEFORE, CUT = 60, 240  # characters of a text before the first difference, and in all
TICKS = 6  # at most
SHAPES = {
    "gain": '<path id="won" class="full" d="M0-6 6 0 0 6-6 0z"/>',
    "nothing": '<path id="unfair" d="M0-6 6 0 0 6-6 0z"/>',
    "open": '<circle id="open" r="5"/>',
    "low": '<path id="low" class="full" d="M0 0 7-4V4z"/>',
    "high": '<path id="high" class="full" d="M0 0-7-4V4z"/>',
}
HEADS = {
    "delta": "Δ (pp)",
    "interval": "95 % interval",
    "p": "p",
    "size": "n",
    "cache": "cache",
    "says": "says",
}


def forest(judged: Row, behind: Sequence[Sequence[Behind]]) -> Html:
    """Render the plot. answers: for every contrast, the shown ones of `discordant_answers.find_discordant`.
    """
    contrasts = judged["contrasts"]
    low, high = span(contrasts)
    bounds = margins(judged)
    shapes = Html(f'<svg class="defs" aria-hidden="true"><defs>{"".join(SHAPES.values())}</defs></svg>')
    parts = [shapes, _heads(low, high)]
    for heading, members in _grouped(contrasts).items():
        parts.append(element("h3", heading))
        parts += [_row(contrasts[at], label, behind[at], (low, high), bounds) for at, label in members]
    subject = {one["subject"] for one in contrasts}
    own = subject.pop() if len(subject) == 1 else "the first arm"
    parts.append(_axis(low, high, own))
    return Html(element("div", *parts, class_="forest") + _legend(judged))


def _grouped(contrasts: Sequence[Row]) -> dict[str, list[tuple[int, str]]]:
    """Group the contrasts (index and label) by cell or by pair of arms, whichever gives fewer groups."""
    several = len({one["subject"] for one in contrasts}) > 1
    differ = [len({place(one)[part] for one in contrasts}) > 1 for part in range(3)]
    places, pairs = dict[str, list[tuple[int, str]]](), dict[str, list[tuple[int, str]]]()
    for at, one in enumerate(contrasts):
        model, task, budget = place(one)
        where = f"{model} · {task} · budget {budget}"
        names = itertools.compress((model, task, f"budget {budget}"), differ)
        against = f"{one['subject']} " * several + f"against {one['against']}"
        places.setdefault(where, []).append((at, against))
        pairs.setdefault(f"{one['subject']} against {one['against']}", []).append(
            (at, " · ".join(names) or where)
        )
    return pairs if len(pairs) < len(places) else places


def _heads(low: float, high: float) -> Html:
    cells = [element("span", name, class_=kind) for kind, name in HEADS.items()]
    ticks = _drawn(_ticks(low, high, up=True))
    empty = element("span", class_="label")
    return element("div", empty, ticks, *cells, class_="row heads", aria_hidden="true")


def _row(
    one: Row, label: str, behind: Sequence[Behind], ends: tuple[float, float], bounds: Sequence[float]
) -> Html:
    cells = [element("span", label, class_="label")]
    if one["difference"] is None:
        told = element("span", "not estimated", class_="says")
        return element("div", element("div", *cells, told, class_="row"), class_="contrast")
    values = {
        "delta": numbers.points(one["difference"]),
        "interval": numbers.interval(one["low"], one["high"]),
        "p": numbers.p_value(one["p"]),
        "size": numbers.size(one),
        "cache": f"{float(one['cache_ratio']):.3f}",
        "says": _says(one),
    }
    cells.append(_plot(one, ends, bounds))
    cells += [
        element("span", element("b", f"{HEADS[kind]} "), value, class_=kind) for kind, value in values.items()
    ]
    row = element("summary", *cells, class_="row counts" if counts(one) else "row")
    return element("details", row, _behind(one, behind))


def _says(one: Row) -> str:
    if not one["matched"]:
        return "unmatched" if one.get("saves") is None else "saves nothing"
    return "better" if one["better"] else "worse" if one["worse"] else "neither"


def _plot(one: Row, ends: tuple[float, float], bounds: Sequence[float]) -> Html:
    """Render a row's plot. Positions are percentages, so that it fits any width."""
    parts = [
        f'<line class="{kind}" x1="{_at(value, ends)}" x2="{_at(value, ends)}" y2="100%"/>'
        for kind, value in (("zero", 0.0), *(("margin", bound) for bound in bounds))
    ]
    family = "margin" if one.get("low_margin") is not None else "simultaneous"  # same as `contrasts.mark`
    for kind, names in (("thin", (f"low_{family}", f"high_{family}")), ("thick", ("low", "high"))):
        left, right = (100 * float(one[name]) for name in names)
        shown = [_at(min(max(value, ends[0]), ends[1]), ends) for value in (left, right)]
        parts.append(f'<line class="{kind}" x1="{shown[0]}" x2="{shown[1]}" y1="50%" y2="50%"/>')
        parts += [
            f'<use href="#{shape}" x="{at}" y="50%"/>'
            for shape, beyond, at in (
                ("low", left < ends[0], shown[0]),
                ("high", right > ends[1], shown[1]),
            )
            if beyond
        ]
    shape = "won" if counts(one) else "unfair" if one["better"] or one["worse"] else "open"
    at = _at(100 * float(one["difference"]), ends)
    parts.append(f'<use href="#{shape}" x="{at}" y="50%"/>')
    return _drawn(parts)


def _axis(low: float, high: float, subject: str) -> Html:
    sides = [element("span", words) for words in ("← comparator better", f"{subject} better →")]
    plot = element("div", _drawn(_ticks(low, high)), element("div", *sides, class_="sides"))
    return element("div", element("span", class_="label"), plot, class_="row axis")


def _ticks(low: float, high: float, *, up: bool = False) -> list[str]:
    """Return the ticks. up: they point up to the rows instead of down."""
    ends, step = (low, high), _step(high - low)
    lines, base = ('y1="14" y2="18"', 10) if up else ('y1="0" y2="5"', 17)
    return [
        f'<line class="zero" x1="{_at(tick, ends)}" x2="{_at(tick, ends)}" {lines}/>'
        f'<text x="{_at(tick, ends)}" y="{base}">{_points(tick)}</text>'
        for tick in (step * count for count in range(math.ceil(low / step), math.floor(high / step) + 1))
    ]


def _drawn(parts: Sequence[str]) -> Html:
    return Html(f'<svg class="plot" aria-hidden="true">{"".join(parts)}</svg>')


def _step(width: float) -> float:
    """Return the distance of ticks: 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(width / TICKS))
    return next(times * power for times in (1, 2, 5, 10) if width / (times * power) <= TICKS)


def _points(tick: float) -> str:
    return numbers.points(str(tick / 100)).removesuffix(".0")


def _at(value: float, ends: tuple[float, float]) -> str:
    return f"{100 * (value - ends[0]) / (ends[1] - ends[0]):.2f}%"


def _legend(judged: Row) -> Html:
    contrasts = judged["contrasts"]
    known = [one for one in contrasts if one["difference"] is not None]
    apart = [one for one in known if not one["matched"]]
    why = "no memory was saved" if any("saves" in one for one in known) else "memory was not matched"
    unfair = f" {_says(apart[0])}: {why}." if apart else ""
    hollow = " ◇ passes and is unmatched." if any(one["better"] or one["worse"] for one in apart) else ""
    held = {"slots": "slots", "bytes": "bytes", "total": "bytes with the policies' own state"}
    bounds = " and ".join(f"{_points(margin)} points" for margin in margins(judged))
    thin = "the limits that the rule compares with it" if bounds else "simultaneous interval of the family"
    return sentences(
        f"Dashed: the margin of the rule, {bounds}. The rule asks on which side of it a thin line is; ◆ and "
        "what a row says are of a difference from zero, and decide nothing here."
        if bounds
        else "",
        f"Thick line: 95 % interval. Thin line: {thin}. Arrowhead: it goes on. "
        f"◆ passes the correction of its family, ○ does not.{hollow}{unfair} cache: mean "
        f"{held[numbers.matched_by(contrasts)]} held, subject over comparator. A row opens onto answers that "
        "only one of the two got right.",
        *numbers.scores(contrasts),
    )


def _behind(one: Row, behind: Sequence[Behind]) -> Html:
    verbs = ("scored higher", "scored lower") if "scored" in one else ("was right", "was wrong")
    other = "" if "scored" in one else f", where {one['against']} was {'{}'}"
    kinds = {
        "gain": f"{one['gains']} gained: {one['subject']} {verbs[0]}{other.format('wrong')}",
        "loss": f"{one['losses']} lost: {one['subject']} {verbs[1]}{other.format('right')}",
    }
    parts = []
    for kind, words in kinds.items():
        found = [lane for lane in behind if lane.kind == kind]
        few = f". Shown: {len(found)}" if found and len(found) < one[PLURAL[kind]] else ""
        parts.append(element("h4", f"{words}{few}."))
        if found:
            parts.append(element("ul", *(_lane(one, lane) for lane in found)))
    return element("div", *parts, class_="behind")


PLURAL = {"gain": "gains", "loss": "losses"}


def _lane(one: Row, lane: Behind) -> Html:
    seed = f", seed {lane.seed}" if one["seeds"] > 1 else ""
    gold = f", right answer: {_cut(lane.gold)}" if lane.gold is not None else ""
    named = element("p", element("bdi", _cut(lane.problem)), f"{seed}{gold}")
    texts = [
        element("p", element("span", arm), _excerpt(text, lane.differs), class_="said")
        for arm, text in ((one["subject"], lane.subject), (one["against"], lane.comparator))
    ]
    return element("li", named, *texts)


def _cut(text: str) -> str:
    """Shorten a text, since a model that boxes its whole output has that as its answer."""
    return shown(text[:CUT]) + " …" * (len(text) > CUT)


def _excerpt(text: str, differs: int) -> Html:
    """Render the text around the first difference, with the differing word marked and control characters made
    visible.
    """
    start = max(0, differs - BEFORE)
    end = start + CUT
    word = differs + len(text[differs:].split(maxsplit=1)[0]) if text[differs:].strip() else differs
    word += len(text[differs:]) - len(text[differs:].lstrip())
    word = min(word, end)
    return element(
        "q",
        "… " * (start > 0) + shown(text[start:differs]),
        element("mark", shown(text[differs:word]) or "(ends)"),
        shown(text[word:end]) + " …" * (len(text) > end),
    )
