"""Bar plot of the accuracy change from replacing one part of a policy, with the registered intervals."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from analysis.stats.methods import resampled
from analysis.studies.arms import runs
from figures.canvas import numbers, page
from figures.canvas.contrasts import axis, counts
from figures.canvas.page import INK, PALE
from figures.canvas.rows import Table, entries, grouped, groups, limits, point, table

__all__ = ["ablation", "variants"]

COLUMNS = {"effect (pp)": 0.9, "simultaneous interval": 1.5, "p": 0.75, "n": 0.5, "discordant": 0.85}
SHADES = {"dark": "#c4c4bf", "light": "#dededa"}  # smaller, larger share of discordant problems


def variants(judged: Mapping[str, Any], lock: Mapping[str, Any]) -> bool:
    """Return whether the subject is compared only with variants of itself: the names of all these policies
    begin with one word, as in crystal and crystal-static. The policy of a swept subject is the winner's.
    """
    ran = {name: runs(arm) for name, arm in lock["protocol"]["content"]["arms"].items()}
    if "selected" in judged:
        ran[judged["contrasts"][0]["subject"]] = judged["selected"]["policy"]
    names = {one[side] for one in judged["contrasts"] for side in ("subject", "against")}
    return len({ran[name].partition("-")[0] for name in names}) == 1


def ablation(judged: Mapping[str, Any], lock: Mapping[str, Any]) -> Figure:
    """Draw one bar for each contrast, in registered order and grouped by model, task and budget.

    Its length is the variant's accuracy minus the subject's, that is minus the judged difference; the line is
    the simultaneous interval with reversed signs. Shaded: effects smaller than those that the lock calls
    detectable, at two shares of discordant problems. The gid of each artist is its meaning and the index of
    its contrast ("bar-3", "interval-3", "point-3"; "shade-0.2-1" is that of the second group).
    """
    contrasts = judged["contrasts"]
    subject = contrasts[0]["subject"]
    rows = grouped(contrasts, lambda one: str(one["against"]))
    correction = numbers.correction(judged["method"], judged)
    drawn = table(
        rows,
        COLUMNS,
        f"Accuracy of each variant minus that of {subject}",
        [
            page.standing(judged),
            f"{judged['family']} registered contrasts of {subject}, turned round; {judged['method']}, alpha "
            f"{numbers.level(judged['alpha'])}.",
        ],
        [
            f"Line: simultaneous interval of the family. Filled bar and ◆: passes {correction}. ○ does not. "
            "◇ passes but counts for nothing, since memory was not matched (†).",
            f"discordant: share of the answers in which {subject} and the variant differ. Shaded: effects "
            "smaller than what the study finds with 80 % power, as registered:",
            *numbers.scores(contrasts),
            *(_registered(task, lock) for task in dict.fromkeys(one["task"] for one in contrasts)),
        ],
    )
    axes = drawn.axes
    axes.set_xlim(*_limits(contrasts))
    for number, (first, last, (_, task, _)) in enumerate(groups(rows)):
        _ground(axes, (first + 0.5, last - 0.5), number, _detectable(task, lock))
    for y, index, one in entries(rows):
        _bar(drawn, y, index, one)
    axis(drawn, f"{subject} better", "variant better")
    return drawn.sheet.figure


def _bar(drawn: Table, y: int, index: int, one: Mapping[str, Any]) -> None:
    if one["difference"] is None:
        drawn.cells(y, {"simultaneous interval": "not estimated", "n": numbers.size(one)}, color=PALE)
        return
    effect, low, high = (-float(one[key]) for key in ("difference", "high_simultaneous", "low_simultaneous"))
    passes, axes = one["better"] or one["worse"], drawn.axes
    bar = {"height": 0.56, "edgecolor": INK, "linewidth": 0.8, "zorder": 2, "gid": f"bar-{index}"}
    axes.barh(y, 100 * effect, facecolor="#9a9a9a" if counts(one) else "white", **bar)
    axes.plot((100 * low, 100 * high), (y, y), color=INK, linewidth=1.4, zorder=3, gid=f"interval-{index}")
    how: dict[str, Any] = {"markersize": 5.5, "zorder": 4, "gid": f"point-{index}"}
    point(axes, 100 * effect, y, "D" if passes else "o", filled=counts(one), **how)
    cells = {
        "effect (pp)": numbers.points(str(effect)),
        "simultaneous interval": numbers.interval(str(low), str(high)),
        "p": numbers.p_value(one["p"]),
        "n": numbers.size(one),
        "discordant": f"{page.percent((one['gains'] + one['losses']) / (one['n'] * one['seeds']))} %",
    }
    drawn.cells(y, cells, weight="bold" if counts(one) else "normal")
    if not one["matched"]:
        drawn.dagger(y, "effect (pp)")


def _ground(axes: Any, rows: tuple[float, float], number: int, effects: Mapping[str, str]) -> None:
    """Draw the zero line of a group, and shade the effects that would probably be missed."""
    axes.plot((0, 0), rows, color=INK, linewidth=0.9, zorder=2.5, gid=f"zero-{number}")
    low, high = axes.get_xlim()
    for depth, (colour, (share, effect)) in enumerate(zip(SHADES.values(), effects.items(), strict=True)):
        reach = 0.0 if effect == "none" else 100 * float(effect)
        ends = max(low, -reach), min(high, reach)
        shade = axes.fill_betweenx(rows, *ends, color=colour, linewidth=0, zorder=-1 - 0.1 * depth)
        shade.set_gid(f"shade-{share}-{number}")


def _limits(contrasts: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Return limits that include every interval, and 5 pp on both sides of zero."""
    names = "difference", "low_simultaneous", "high_simultaneous"
    ends = [-100 * float(one[name]) for one in contrasts for name in names if one[name] is not None]
    return limits(ends)


def _registered(task: str, lock: Mapping[str, Any]) -> str:
    parts = []
    for shade, (share, effect) in zip(SHADES, _detectable(task, lock).items(), strict=True):
        found = "none" if effect == "none" else f"{page.percent(float(effect))} pp ({shade})"
        parts.append(f"{found} if {100 * float(share):.0f} % of the problems are discordant")
    size, item = len(resampled(lock["items"][task])), lock["items"][task]
    return f"{task}, {size} {'clusters' if 'clusters' in item else 'problems'}: {'; '.join(parts)}."


def _detectable(task: str, lock: Mapping[str, Any]) -> dict[str, str]:
    """Return the smallest effects that were registered as detectable, or "none", by share of discordant
    problems, the smaller share first.
    """
    check = lock["checks"]["problems"][str(len(resampled(lock["items"][task])))]
    return dict(sorted(check["minimal_detectable_effect"].items()))
