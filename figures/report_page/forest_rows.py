"""The registered contrasts of a report: a forest plot whose rows open to show the discordant answers.

It has the numbers and marks of `figures.plots.forest`, and adapts to the width and colours of the screen.
"""

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from markupsafe import Markup

from analysis.rules import judged_numbers
from figures.drawing import formatting
from figures.drawing.contrasts import axis_limits, cell_texts, is_significant, rule_margins
from figures.drawing.table_rows import cell_of
from figures.report_page.discordant_answers import DiscordantAnswer
from figures.report_page.rendering import render
from protocol.formats.escape import escape_control
from protocol.formats.vocabulary import READS

Row: TypeAlias = Mapping[str, Any]
CONTEXT_CHARACTERS, EXCERPT_CHARACTERS = 60, 240  # characters of a text before the first difference, and in all
NEXT_WORD = re.compile(r"\s*\S*")
MAX_TICKS = 6  # at most
OPEN_ROWS = 4  # contrasts that a narrow screen shows without a click; page.js opens the others on wide ones
HEADS = {"delta": "Δ (pp)", "interval": "95 % interval", "p": "p", "size": "n", "cache": "cache", "says": "says"}


def render_forest(judged: Row, answers: Sequence[Sequence[DiscordantAnswer]]) -> Markup:
    """Render the plot. answers: for every contrast, the shown ones of `discordant_answers.find_discordant`."""
    contrasts = judged["contrasts"]
    ends, bounds = axis_limits(contrasts), rule_margins(judged)
    subject = {contrast["subject"] for contrast in contrasts}
    groups, folded = _split_groups(
        {
            heading: [_row_values(contrasts[index], label, answers[index], ends) for index, label in members]
            for heading, members in _group_contrasts(contrasts).items()
        }
    )
    return render(
        "contrasts.html",
        heads=HEADS | {"interval": formatting.interval_heading(contrasts)},
        axis=_axis_ticks(ends),
        verticals=[(kind, _position(x, ends)) for kind, x in (("zero", 0.0), *(("margin", x) for x in bounds))],
        groups=groups,
        folded=folded,
        folded_count=sum(map(len, folded.values())),
        subject=subject.pop() if len(subject) == 1 else "the first arm",
        notes=_legend_notes(judged),
    )


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


def _split_groups(groups: Mapping[str, list[Row]]) -> tuple[dict[str, list[Row]], dict[str, list[Row]]]:
    """Split off what follows the first `OPEN_ROWS` rows; a group that is split continues under its heading."""
    shown, folded = dict[str, list[Row]](), dict[str, list[Row]]()
    for heading, rows in groups.items():
        room = OPEN_ROWS - sum(map(len, shown.values()))
        if rows[:room]:
            shown[heading] = rows[:room]
        if rows[room:]:
            folded[f"{heading} (continued)" if heading in shown else heading] = rows[room:]
    return shown, folded


def _row_values(
    contrast: Row, label: str, answers: Sequence[DiscordantAnswer], ends: tuple[float, float]
) -> dict[str, Any]:
    """Return what a row shows: printed numbers, the lines and marks of its plot, and the answers behind it."""
    if contrast["difference"] is None:
        return {"label": label, "cells": None}
    cells = dict(zip(HEADS, [*cell_texts(contrast).values(), _format_outcome(contrast)], strict=True))
    lines, marks = _plot_lines(contrast, ends)
    return {
        "label": label,
        "cells": cells,
        "counts": is_significant(contrast),
        "lines": lines,
        "marks": marks,
        "answers": _answers_by_heading(contrast, answers),
    }


def _format_outcome(contrast: Row) -> str:
    mark = "better" if contrast["better"] else "worse" if contrast["worse"] else "neither"
    return formatting.idle_text(contrast) or mark


def _plot_lines(contrast: Row, ends: tuple[float, float]) -> tuple[list[tuple[str, str, str]], list[tuple[str, str]]]:
    """Return the lines and marks of a row. Positions are percentages, so that the plot fits any width."""
    lines, marks = [], []
    family = "margin" if contrast.get("low_margin") is not None else "simultaneous"  # as `contrasts.draw_contrast`
    for kind, names in (("thin", (f"low_{family}", f"high_{family}")), ("thick", ("low", "high"))):
        left, right = (100 * float(contrast[name]) for name in names)
        start, end = (_position(min(max(value, ends[0]), ends[1]), ends) for value in (left, right))
        lines.append((kind, start, end))
        marks += [("low", start)] * (left < ends[0]) + [("high", end)] * (right > ends[1])
    shape = "won" if is_significant(contrast) else "unfair" if contrast["better"] or contrast["worse"] else "open"
    return lines, [*marks, (shape, _position(100 * float(contrast["difference"]), ends))]


def _axis_ticks(ends: tuple[float, float]) -> list[dict[str, str]]:
    low, high = ends
    step = _tick_step(high - low)
    ticks = [step * count for count in range(math.ceil(low / step), math.floor(high / step) + 1)]
    return [{"x": _position(tick, ends), "text": _format_points(tick)} for tick in ticks]


def _tick_step(width: float) -> float:
    """Return the distance of ticks: 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(width / MAX_TICKS))
    return next(times * power for times in (1, 2, 5, 10) if width / (times * power) <= MAX_TICKS)


def _format_points(tick: float) -> str:
    return judged_numbers.format_points(str(tick / 100)).removesuffix(".0")


def _position(value: float, ends: tuple[float, float]) -> str:
    return f"{100 * (value - ends[0]) / (ends[1] - ends[0]):.2f}%"


def _legend_notes(judged: Row) -> list[str]:
    contrasts = judged["contrasts"]
    estimated = [contrast for contrast in contrasts if contrast["difference"] is not None]
    unmatched = [contrast for contrast in estimated if not contrast["matched"]]
    reason = formatting.unmatched_reason(estimated)
    unfair = f" {_format_outcome(unmatched[0])}: {reason}." if unmatched else ""
    has_passed = any(contrast["better"] or contrast["worse"] for contrast in unmatched)
    hollow = " ◇: significant, but memory was unmatched." if has_passed else ""
    memory_units = {
        "slots": "slots in use",
        "bytes": "bytes of keys and values",
        "total": "bytes including the policies' own state",
        READS: "slots that a new token reads",
    }
    bounds = " and ".join(f"{_format_points(margin)} points" for margin in rule_margins(judged))
    thin = "the limits that the rule compares with it" if bounds else "simultaneous interval of the family"
    return [
        (
            f"Dashed: the margin of the rule, {bounds}. The rule uses only the side of the margin on which a "
            "thin line lies; ◆ and the text of a row refer to a difference from zero, and decide nothing here."
        )
        if bounds
        else "",
        (
            f"Thick line: 95 % interval of the contrast alone, uncorrected. Thin line: {thin}. Arrowhead: the "
            "interval continues beyond the axis. ◆: significant after the correction of its family, ○: not "
            f"significant.{hollow}{unfair} cache: mean {memory_units[formatting.memory_basis(contrasts)]}, "
            "subject divided by comparator."
        ),
        *formatting.score_notes(contrasts),
    ]


def _answers_by_heading(contrast: Row, answers: Sequence[DiscordantAnswer]) -> dict[str, list[dict[str, Any]]]:
    verbs = ("scored higher", "scored lower") if "scored" in contrast else ("was right", "was wrong")
    if contrast.get("scored") == "agreement":
        verbs = ("agreed more", "agreed less")
    other = "" if "scored" in contrast else f", where {contrast['against']} was {'{}'}"
    headings = {
        "gain": f"{contrast['gains']} gained: {contrast['subject']} {verbs[0]}{other.format('wrong')}",
        "loss": f"{contrast['losses']} lost: {contrast['subject']} {verbs[1]}{other.format('right')}",
    }
    answers_by_heading = {}
    for kind, heading in headings.items():
        shown = [_answer_values(contrast, answer) for answer in answers if answer.kind == kind]
        count_note = f". Shown: {len(shown)}" if shown and len(shown) < contrast[COUNT_FIELDS[kind]] else ""
        answers_by_heading[f"{heading}{count_note}"] = shown
    return answers_by_heading


COUNT_FIELDS = {"gain": "gains", "loss": "losses"}


def _answer_values(contrast: Row, answer: DiscordantAnswer) -> dict[str, Any]:
    seed = f", seed {answer.seed}" if contrast["seeds"] > 1 else ""
    gold = f", right answer: {_shorten(answer.gold)}" if answer.gold is not None else ""
    texts = ((contrast["subject"], answer.subject), (contrast["against"], answer.comparator))
    return {
        "problem": _shorten(answer.problem),
        "remark": f"{seed}{gold}",
        "texts": [(arm, _cut_excerpt(text, answer.common_prefix)) for arm, text in texts],
    }


def _shorten(text: str) -> str:
    """Shorten a text, since a model that boxes its whole output has that as its answer."""
    return escape_control(text[:EXCERPT_CHARACTERS]) + " …" * (len(text) > EXCERPT_CHARACTERS)


def _cut_excerpt(text: str, common_prefix: int) -> dict[str, str]:
    """Return the text before the first difference, the word that differs, and the text after it, with control
    characters made visible.
    """
    start = max(0, common_prefix - CONTEXT_CHARACTERS)
    end = start + EXCERPT_CHARACTERS
    match = NEXT_WORD.match(text, common_prefix)
    assert match is not None  # it matches an empty text
    word = min(match.end(), end)
    return {
        "before": "… " * (start > 0) + escape_control(text[start:common_prefix]),
        "word": escape_control(text[common_prefix:word]),
        "after": escape_control(text[word:end]) + " …" * (len(text) > end),
    }
