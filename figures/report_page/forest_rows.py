"""The registered contrasts of a report: a forest plot whose rows open to show the discordant answers.

It has the numbers and marks of `figures.plots.forest`, and adapts to the width and colours of the screen.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from analysis.rules import judged_numbers
from figures.drawing import formatting
from figures.drawing.contrasts import axis_limits, is_significant, rule_margins
from figures.drawing.table_rows import cell_of
from figures.report_page.discordant_answers import DiscordantAnswer
from figures.report_page.markup import Html, element, paragraphs
from protocol.formats.escape import escape_control

__all__ = ["render_forest"]

Row: TypeAlias = Mapping[str, Any]
CONTEXT_CHARACTERS, EXCERPT_CHARACTERS = 60, 240  # characters of a text before the first difference, and in all
MAX_TICKS = 6  # at most
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


def render_forest(judged: Row, answers: Sequence[Sequence[DiscordantAnswer]]) -> Html:
    """Render the plot. answers: for every contrast, the shown ones of `discordant_answers.find_discordant`."""
    contrasts = judged["contrasts"]
    low, high = axis_limits(contrasts)
    bounds = rule_margins(judged)
    shapes = Html(f'<svg class="defs" aria-hidden="true"><defs>{"".join(SHAPES.values())}</defs></svg>')
    parts = [shapes, _render_heads(low, high)]
    for heading, members in _group_contrasts(contrasts).items():
        parts.append(element("h3", heading))
        parts += [_render_row(contrasts[index], label, answers[index], (low, high), bounds) for index, label in members]
    subject = {contrast["subject"] for contrast in contrasts}
    subject_name = subject.pop() if len(subject) == 1 else "the first arm"
    parts.append(_render_axis(low, high, subject_name))
    return Html(element("div", *parts, class_="forest") + _render_legend(judged))


def _group_contrasts(contrasts: Sequence[Row]) -> dict[str, list[tuple[int, str]]]:
    """Group the contrasts (index and label) by cell or by pair of arms, whichever gives fewer groups."""
    has_several_subjects = len({contrast["subject"] for contrast in contrasts}) > 1
    differ = [len({cell_of(contrast)[part] for contrast in contrasts}) > 1 for part in range(3)]
    by_place, by_pair = dict[str, list[tuple[int, str]]](), dict[str, list[tuple[int, str]]]()
    for index, contrast in enumerate(contrasts):
        model, task, budget = cell_of(contrast)
        place_label = f"{model} · {task} · budget {budget}"
        names = itertools.compress((model, task, f"budget {budget}"), differ)
        against = f"{contrast['subject']} " * has_several_subjects + f"against {contrast['against']}"
        by_place.setdefault(place_label, []).append((index, against))
        by_pair.setdefault(f"{contrast['subject']} against {contrast['against']}", []).append(
            (index, " · ".join(names) or place_label)
        )
    return by_pair if len(by_pair) < len(by_place) else by_place


def _render_heads(low: float, high: float) -> Html:
    cells = [element("span", name, class_=kind) for kind, name in HEADS.items()]
    ticks = _wrap_svg(_render_ticks(low, high, up=True))
    empty = element("span", class_="label")
    return element("div", empty, ticks, *cells, class_="row heads", aria_hidden="true")


def _render_row(
    contrast: Row, label: str, answers: Sequence[DiscordantAnswer], ends: tuple[float, float], bounds: Sequence[float]
) -> Html:
    cells = [element("span", label, class_="label")]
    if contrast["difference"] is None:
        message = element("span", "not estimated", class_="says")
        return element("div", element("div", *cells, message, class_="row"), class_="contrast")
    values = {
        "delta": judged_numbers.format_points(contrast["difference"]),
        "interval": judged_numbers.format_interval(contrast["low"], contrast["high"]),
        "p": judged_numbers.format_p(contrast["p"]),
        "size": formatting.format_size(contrast),
        "cache": f"{float(contrast['cache_ratio']):.3f}",
        "says": _format_outcome(contrast),
    }
    cells.append(_render_plot(contrast, ends, bounds))
    cells += [element("span", element("b", f"{HEADS[kind]} "), value, class_=kind) for kind, value in values.items()]
    row = element("summary", *cells, class_="row counts" if is_significant(contrast) else "row")
    return element("details", row, _render_answers(contrast, answers))


def _format_outcome(contrast: Row) -> str:
    if not contrast["matched"]:
        return "unmatched" if contrast.get("saves") is None else "saves nothing"
    return "better" if contrast["better"] else "worse" if contrast["worse"] else "neither"


def _render_plot(contrast: Row, ends: tuple[float, float], bounds: Sequence[float]) -> Html:
    """Render a row's plot. Positions are percentages, so that it fits any width."""
    parts = [
        f'<line class="{kind}" x1="{_position(value, ends)}" x2="{_position(value, ends)}" y2="100%"/>'
        for kind, value in (("zero", 0.0), *(("margin", bound) for bound in bounds))
    ]
    family = "margin" if contrast.get("low_margin") is not None else "simultaneous"  # same as `contrasts.mark`
    for kind, names in (("thin", (f"low_{family}", f"high_{family}")), ("thick", ("low", "high"))):
        left, right = (100 * float(contrast[name]) for name in names)
        clipped = [_position(min(max(value, ends[0]), ends[1]), ends) for value in (left, right)]
        parts.append(f'<line class="{kind}" x1="{clipped[0]}" x2="{clipped[1]}" y1="50%" y2="50%"/>')
        parts += [
            f'<use href="#{shape}" x="{x}" y="50%"/>'
            for shape, is_beyond, x in (
                ("low", left < ends[0], clipped[0]),
                ("high", right > ends[1], clipped[1]),
            )
            if is_beyond
        ]
    shape = "won" if is_significant(contrast) else "unfair" if contrast["better"] or contrast["worse"] else "open"
    x = _position(100 * float(contrast["difference"]), ends)
    parts.append(f'<use href="#{shape}" x="{x}" y="50%"/>')
    return _wrap_svg(parts)


def _render_axis(low: float, high: float, subject: str) -> Html:
    sides = [element("span", words) for words in ("← comparator better", f"{subject} better →")]
    plot = element("div", _wrap_svg(_render_ticks(low, high)), element("div", *sides, class_="sides"))
    return element("div", element("span", class_="label"), plot, class_="row axis")


def _render_ticks(low: float, high: float, *, up: bool = False) -> list[str]:
    """Return the ticks. up: they point up to the rows instead of down."""
    ends, step = (low, high), _tick_step(high - low)
    lines, base = ('y1="14" y2="18"', 10) if up else ('y1="0" y2="5"', 17)
    return [
        f'<line class="zero" x1="{_position(tick, ends)}" x2="{_position(tick, ends)}" {lines}/>'
        f'<text x="{_position(tick, ends)}" y="{base}">{_format_points(tick)}</text>'
        for tick in (step * count for count in range(math.ceil(low / step), math.floor(high / step) + 1))
    ]


def _wrap_svg(parts: Sequence[str]) -> Html:
    return Html(f'<svg class="plot" aria-hidden="true">{"".join(parts)}</svg>')


def _tick_step(width: float) -> float:
    """Return the distance of ticks: 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(width / MAX_TICKS))
    return next(times * power for times in (1, 2, 5, 10) if width / (times * power) <= MAX_TICKS)


def _format_points(tick: float) -> str:
    return judged_numbers.format_points(str(tick / 100)).removesuffix(".0")


def _position(value: float, ends: tuple[float, float]) -> str:
    return f"{100 * (value - ends[0]) / (ends[1] - ends[0]):.2f}%"


def _render_legend(judged: Row) -> Html:
    contrasts = judged["contrasts"]
    estimated = [contrast for contrast in contrasts if contrast["difference"] is not None]
    unmatched = [contrast for contrast in estimated if not contrast["matched"]]
    reason = "no memory was saved" if any("saves" in contrast for contrast in estimated) else "memory was not matched"
    unfair = f" {_format_outcome(unmatched[0])}: {reason}." if unmatched else ""
    hollow = (
        " ◇ passes and is unmatched." if any(contrast["better"] or contrast["worse"] for contrast in unmatched) else ""
    )
    memory_units = {"slots": "slots", "bytes": "bytes", "total": "bytes with the policies' own state"}
    bounds = " and ".join(f"{_format_points(margin)} points" for margin in rule_margins(judged))
    thin = "the limits that the rule compares with it" if bounds else "simultaneous interval of the family"
    return paragraphs(
        f"Dashed: the margin of the rule, {bounds}. The rule asks on which side of it a thin line is; ◆ and "
        "what a row says are of a difference from zero, and decide nothing here."
        if bounds
        else "",
        f"Thick line: 95 % interval. Thin line: {thin}. Arrowhead: it goes on. "
        f"◆ passes the correction of its family, ○ does not.{hollow}{unfair} cache: mean "
        f"{memory_units[formatting.memory_basis(contrasts)]} held, subject over comparator. A row opens onto "
        "answers that only one of the two got right.",
        *formatting.score_notes(contrasts),
    )


def _render_answers(contrast: Row, answers: Sequence[DiscordantAnswer]) -> Html:
    verbs = ("scored higher", "scored lower") if "scored" in contrast else ("was right", "was wrong")
    other = "" if "scored" in contrast else f", where {contrast['against']} was {'{}'}"
    kinds = {
        "gain": f"{contrast['gains']} gained: {contrast['subject']} {verbs[0]}{other.format('wrong')}",
        "loss": f"{contrast['losses']} lost: {contrast['subject']} {verbs[1]}{other.format('right')}",
    }
    parts = []
    for kind, words in kinds.items():
        answers_of_kind = [answer for answer in answers if answer.kind == kind]
        truncation_note = (
            f". Shown: {len(answers_of_kind)}"
            if answers_of_kind and len(answers_of_kind) < contrast[COUNT_FIELDS[kind]]
            else ""
        )
        parts.append(element("h4", f"{words}{truncation_note}."))
        if answers_of_kind:
            parts.append(element("ul", *(_render_answer(contrast, answer) for answer in answers_of_kind)))
    return element("div", *parts, class_="behind")


COUNT_FIELDS = {"gain": "gains", "loss": "losses"}


def _render_answer(contrast: Row, answer: DiscordantAnswer) -> Html:
    seed = f", seed {answer.seed}" if contrast["seeds"] > 1 else ""
    gold = f", right answer: {_shorten(answer.gold)}" if answer.gold is not None else ""
    heading = element("p", element("bdi", _shorten(answer.problem)), f"{seed}{gold}")
    texts = [
        element("p", element("span", arm), _render_excerpt(text, answer.common_prefix), class_="said")
        for arm, text in ((contrast["subject"], answer.subject), (contrast["against"], answer.comparator))
    ]
    return element("li", heading, *texts)


def _shorten(text: str) -> str:
    """Shorten a text, since a model that boxes its whole output has that as its answer."""
    return escape_control(text[:EXCERPT_CHARACTERS]) + " …" * (len(text) > EXCERPT_CHARACTERS)


def _render_excerpt(text: str, common_prefix: int) -> Html:
    """Render the text around the first difference, with the differing word marked and control characters made
    visible.
    """
    start = max(0, common_prefix - CONTEXT_CHARACTERS)
    end = start + EXCERPT_CHARACTERS
    word = (
        common_prefix + len(text[common_prefix:].split(maxsplit=1)[0])
        if text[common_prefix:].strip()
        else common_prefix
    )
    word += len(text[common_prefix:]) - len(text[common_prefix:].lstrip())
    word = min(word, end)
    return element(
        "q",
        "… " * (start > 0) + escape_control(text[start:common_prefix]),
        element("mark", escape_control(text[common_prefix:word]) or "(ends)"),
        escape_control(text[word:end]) + " …" * (len(text) > end),
    )
