"""Bar plot of the accuracy change from replacing one part of a policy, with the registered intervals."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from analysis.judgement.arm_text import policy_names, policy_settings
from analysis.rules import judged_numbers
from analysis.stats.methods import resampling_problems
from figures.drawing import formatting, page
from figures.drawing.contrasts import is_significant, label_axis
from figures.drawing.page import INK, PALE
from figures.drawing.table_rows import (
    RowTable,
    draw_point,
    draw_table,
    group_entries,
    limits,
    numbered_entries,
    row_groups,
)
from protocol.formats.settings_difference import differing_parts

COLUMNS = {"effect (pp)": 0.9, "simultaneous interval": 1.5, "p": 0.75, "n": 0.5, "discordant": 0.85}
SHADES = {"dark": "#c4c4bf", "light": "#dededa"}  # smaller, larger share of discordant problems


def is_ablation(judged: Mapping[str, Any], lock: Mapping[str, Any]) -> bool:
    """Return whether the subject is compared only with variants of itself: policies that differ from its own in
    one part, by the settings in the lock. The policy of a swept subject is the winner's. Without settings in the
    lock, all names of these policies begin with one word, as in crystal and crystal-static.
    """
    pairs = {(contrast["subject"], contrast["against"]) for contrast in judged["contrasts"]}
    subject = judged["contrasts"][0]["subject"]
    if settings := policy_settings(lock, judged, subject):
        return all(
            {name, against} <= settings.keys() and len(differing_parts(settings[against], settings[name])) == 1
            for name, against in pairs
        )
    ran = policy_names(lock, judged, subject)
    return len({ran[name].partition("-")[0] for pair in pairs for name in pair}) == 1


def ablation(judged: Mapping[str, Any], lock: Mapping[str, Any]) -> Figure:
    """Draw one bar for each contrast, in registered order and grouped by model, task and budget.

    Its length is the variant's accuracy minus the subject's, that is minus the judged difference; the line is
    the simultaneous interval with reversed signs. Shaded: effects smaller than those that the lock calls
    detectable, at two shares of discordant problems. The gid of each artist is its meaning and the index of
    its contrast ("bar-3", "interval-3", "point-3"; "shade-0.2-1" is that of the second group).
    """
    contrasts = judged["contrasts"]
    subject = contrasts[0]["subject"]
    rows = group_entries(contrasts, lambda contrast: str(contrast["against"]))
    correction = formatting.format_correction(judged["method"], judged)
    drawn = draw_table(
        rows,
        COLUMNS,
        f"Accuracy of each variant minus that of {subject}",
        [
            page.study_status(judged),
            (
                f"{judged['family']} registered contrasts of {subject}, with the sign reversed; "
                f"{judged['method']}, alpha {judged_numbers.format_level(judged['alpha'])}."
            ),
        ],
        [
            (
                f"Line: simultaneous interval of the family. Filled bar and ◆: significant by {correction}. "
                "○: not significant. ◇: significant but not counted, because memory was not matched (†)."
            ),
            (
                f"discordant: share of the answers in which {subject} and the variant differ. Shaded: effects "
                "smaller than those that the study detects with 80 % power, as registered:"
            ),
            *formatting.score_notes(contrasts),
            *(_describe_detectable(task, lock) for task in dict.fromkeys(contrast["task"] for contrast in contrasts)),
        ],
    )
    axes = drawn.axes
    axes.set_xlim(*_axis_limits(contrasts))
    for number, (first, last, (_, task, _)) in enumerate(row_groups(rows)):
        _shade_undetectable(axes, (first + 0.5, last - 0.5), number, _detectable_effects(task, lock))
    for y, index, contrast in numbered_entries(rows):
        _draw_bar(drawn, y, index, contrast)
    label_axis(drawn, f"{subject} better", "variant better")
    return drawn.sheet.figure


def _draw_bar(drawn: RowTable, y: int, index: int, contrast: Mapping[str, Any]) -> None:
    if contrast["difference"] is None:
        drawn.print_cells(
            y, {"simultaneous interval": "not estimated", "n": formatting.format_size(contrast)}, color=PALE
        )
        return
    effect, low, high = (-float(contrast[key]) for key in ("difference", "high_simultaneous", "low_simultaneous"))
    passes, axes = contrast["better"] or contrast["worse"], drawn.axes
    bar = {"height": 0.56, "edgecolor": INK, "linewidth": 0.8, "zorder": 2, "gid": f"bar-{index}"}
    axes.barh(y, 100 * effect, facecolor="#9a9a9a" if is_significant(contrast) else "white", **bar)
    axes.plot((100 * low, 100 * high), (y, y), color=INK, linewidth=1.4, zorder=3, gid=f"interval-{index}")
    style: dict[str, Any] = {"markersize": 5.5, "zorder": 4, "gid": f"point-{index}"}
    draw_point(axes, 100 * effect, y, "D" if passes else "o", filled=is_significant(contrast), **style)
    discordant = (contrast["gains"] + contrast["losses"]) / (contrast["n"] * contrast["seeds"])
    cells = {
        "effect (pp)": judged_numbers.format_points(str(effect)),
        "simultaneous interval": judged_numbers.format_interval(str(low), str(high)),
        "p": judged_numbers.format_p(contrast["p"]),
        "n": formatting.format_size(contrast),
        "discordant": f"{page.format_percent(discordant)} %",
    }
    drawn.print_cells(y, cells, weight="bold" if is_significant(contrast) else "normal")
    if not contrast["matched"]:
        drawn.mark_unmatched(y, "effect (pp)")


def _shade_undetectable(axes: Any, rows: tuple[float, float], number: int, effects: Mapping[str, str]) -> None:
    """Draw the zero line of a group, and shade the effects that would probably be missed."""
    axes.plot((0, 0), rows, color=INK, linewidth=0.9, zorder=2.5, gid=f"zero-{number}")
    low, high = axes.get_xlim()
    for depth, (colour, (share, effect)) in enumerate(zip(SHADES.values(), effects.items(), strict=True)):
        reach = 0.0 if effect == "none" else 100 * float(effect)
        ends = max(low, -reach), min(high, reach)
        shade = axes.fill_betweenx(rows, *ends, color=colour, linewidth=0, zorder=-1 - 0.1 * depth)
        shade.set_gid(f"shade-{share}-{number}")


def _axis_limits(contrasts: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Return limits that include every interval, and 5 pp on both sides of zero."""
    names = "difference", "low_simultaneous", "high_simultaneous"
    ends = [-100 * float(contrast[name]) for contrast in contrasts for name in names if contrast[name] is not None]
    return limits(ends)


def _describe_detectable(task: str, lock: Mapping[str, Any]) -> str:
    parts = []
    for shade, (share, effect) in zip(SHADES, _detectable_effects(task, lock).items(), strict=True):
        effect_text = "none" if effect == "none" else f"{page.format_percent(float(effect))} pp ({shade})"
        parts.append(f"{effect_text} if {100 * float(share):.0f} % of the problems are discordant")
    size, item = len(resampling_problems(lock["items"][task])), lock["items"][task]
    return f"{task}, {size} {'clusters' if 'clusters' in item else 'problems'}: {'; '.join(parts)}."


def _detectable_effects(task: str, lock: Mapping[str, Any]) -> dict[str, str]:
    """Return the smallest effects that were registered as detectable, or "none", by share of discordant
    problems, the smaller share first.
    """
    check = lock["checks"]["problems"][str(len(resampling_problems(lock["items"][task])))]
    return dict(sorted(check["minimal_detectable_effect"].items()))
