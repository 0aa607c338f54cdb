"""How one judged contrast is drawn and printed, alike in every forest plot."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.ticker import MaxNLocator

from figures.canvas import numbers
from figures.canvas.page import INK
from figures.canvas.rows import limits

__all__ = ["cells", "counts", "in_points", "mark", "span"]


def span(contrasts: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Wide enough for every point and nominal interval, and for 5 pp on both sides of zero."""
    ends = [100 * float(one[end]) for one in contrasts for end in ("low", "high") if one[end] is not None]
    return limits(ends)


def counts(one: Mapping[str, Any]) -> bool:
    """Whether it passes Bonferroni with matched memory."""
    return (one["better"] or one["worse"]) and bool(one["matched"])


def mark(axes: Any, y: int, name: str, one: Mapping[str, Any]) -> None:
    """Thick: the nominal 95 % interval. Thin: the simultaneous one. A filled diamond passes Bonferroni, an
    open circle does not; an open diamond passes without matched memory, which counts for nothing. An
    arrowhead says that an interval goes on beyond the axis. `name` ends the gids.
    """
    low, high = axes.get_xlim()
    passes = one["better"] or one["worse"]
    for kind, width, ends in (
        ("simultaneous", 0.9, ("low_simultaneous", "high_simultaneous")),
        ("nominal", 2.8, ("low", "high")),
    ):
        left, right = (100 * float(one[end]) for end in ends)
        shown = max(left, low), min(right, high)
        axes.plot(
            shown, (y, y), color=INK, linewidth=width, solid_capstyle="butt", zorder=2, gid=f"{kind}-{name}"
        )
        for end, clipped, marker in ((shown[0], left < low, "<"), (shown[1], right > high, ">")):
            if clipped:
                axes.plot(
                    end, y, marker, color=INK, markersize=5, clip_on=False, zorder=3, gid=f"clipped-{name}"
                )
    axes.plot(
        100 * float(one["difference"]),
        y,
        marker="D" if passes else "o",
        markersize=6.5 if passes else 6,
        markerfacecolor=INK if counts(one) else "white",
        markeredgecolor=INK,
        markeredgewidth=1.1,
        linestyle="none",
        zorder=4,
        gid=f"point-{name}",
    )


def cells(one: Mapping[str, Any]) -> dict[str, str]:
    return {
        "Δ (pp)": numbers.points(one["difference"]),
        "95 % interval": numbers.interval(one["low"], one["high"]),
        "p": numbers.p_value(one["p"]),
        "n": str(one["n"]),
        "cache": f"{float(one['cache_ratio']):.3f}",
    }


def in_points(axes: Any) -> None:
    """Ticks of the axis of differences, as percentage points."""
    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, steps=[1, 2, 2.5, 5, 10], min_n_ticks=4))
    axes.xaxis.set_major_formatter(lambda x, _: numbers.points(str(x / 100)).removesuffix(".0"))
