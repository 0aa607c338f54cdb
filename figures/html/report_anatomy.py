"""The report's section on labelled traces: how they ended, and the registered test of a signal."""

from collections.abc import Mapping
from typing import Any

from analysis.anatomy.of_policies import agreed
from analysis.anatomy.reading import HALVES, STATES
from figures.canvas.anatomies import Told, standing
from figures.html import glossary
from figures.html.markup import Html, Number, element, sentences, table

__all__ = ["anatomy"]

STUDENT = "interval (Student)"


def anatomy(told: Told) -> Html:
    """Render the section without its drawings."""
    return Html(
        sentences(glossary.ABOUT["anatomy"], *(f"{said.rstrip('.')}." for said in standing(told)))
        + _states(told)
        + (_tests(told.verdict) if told.verdict is not None else Html(""))
        + _arms(told)
    )


def _states(told: Told) -> Html:
    rows: list[list[str | Number]] = [
        [
            *pair,
            half,
            Number.of(len(told.anatomy.of(pair, half))),
            *map(Number.of, told.anatomy.states(pair, half).values()),
        ]
        for pair in told.anatomy.pairs
        for half in HALVES
    ]
    return Html(
        element("h3", "How the traces ended")
        + sentences(
            "wrong: with its whole cache, so that there is no label; short: shorter than a window; "
            "unreproduced: graded otherwise when it was continued from the cut with nothing occluded; "
            "unmoved: no occlusion changed the grade. None is left out silently; labelled and unmoved ones "
            "alone have labels."
        )
        + table("Traces by half", ["model", "task", "half", "traces", *STATES], rows)
    )


def _arms(told: Told) -> Html:
    heads = ["model", "task", "budget", "arm", "traces", "needed tokens kept, %", "AUC"]
    rows: list[list[str | Number]] = [
        [
            one.model,
            one.task,
            one.budget,
            one.arm,
            Number.of(one.traces),
            Number(f"{100 * one.kept:.1f}", one.kept),
            Number(f"{one.auc:.3f}", one.auc),
            Number("none", None) if one.low is None else Number(f"[{one.low:.3f}, {one.high:.3f}]", one.low),
            Number(f"{100 * one.accuracy:.1f}", one.accuracy),
        ]
        for one in agreed(told.lock, told.anatomy)
    ]
    if not rows:
        return Html("")
    return Html(
        element("h3", "What arms kept of the needed tokens")
        + sentences(
            "One eviction, at the cut. AUC .5: needed tokens are kept as often as others. The oracle, which "
            "knows the labels, is no arm and is left out. Intervals of each row by itself."
        )
        + table(
            "Agreement with labels (exploratory)", [*heads, "95 % interval", "correct at the cut, %"], rows
        )
    )


def _tests(verdict: Mapping[str, Any]) -> Html:
    coverage = f"{100 * float(verdict['coverage']):.4g} %"
    heads = ["model", "task", "says", "signal", "layer", "traces", "mean rho", "p", f"{coverage} {STUDENT}"]
    heads += [
        "bootstrap",
        "Fisher, n = traces",
        "beyond position",
        "beyond position says",
        "AUC",
        "pooled rho",
        "position alone",
    ]
    return Html(
        element("h3", "The registered test")
        + sentences(
            f"Chosen on the one half, tested on the other in the reading {verdict['reading']}, one-sided at "
            f"{float(verdict['level']):.4g}. AGREES: within traces, the chosen signal ranks needed tokens as "
            "on the choosing half; not that an arm which scores by it answers better. "
            "Beyond position: the place of the token held. Pooled: tokens of all traces together, as EpiKV "
            "prints it, which differences between traces move too."
        )
        + table("Chosen on one half, tested on the other", heads, [_test(row) for row in verdict["pairs"]])
    )


def _test(row: Mapping[str, Any]) -> list[str | Number]:
    first: list[str | Number] = [row["model"], row["task"], row["word"]]
    if row["signal"] is None or row["rho"] is None:
        chosen = ["nothing chosen" if row["signal"] is None else row["signal"]]
        return [*first, *chosen, _layer(row), Number.of(row["units"]), *[Number("", None)] * 6, "", *_NONE]
    rho, beyond = row["rho"], row["beyond_position"]
    return [
        *first,
        row["signal"],
        _layer(row),
        Number.of(rho["units"]),
        _number(rho["mean"]),
        Number(f"{float(rho['p']):.6f}", float(rho["p"])),
        *(_limits(rho[name]) for name in ("interval", "bootstrap", "fisher")),
        _number(beyond["mean"]),
        beyond["word"],
        _number(row["auc"], "{:.3f}"),
        _number((row["pooled"] or {}).get("rho")),
        _number(row["position"]),
    ]


_NONE = [Number("", None)] * 3


def _layer(row: Mapping[str, Any]) -> Number:
    return Number("", None) if row["layer"] is None else Number.of(row["layer"])


def _number(value: str | None, form: str = "{:+.3f}") -> Number:
    return Number("", None) if value is None else Number(form.format(float(value)), float(value))


def _limits(ends: list[str] | None) -> Number:
    if ends is None:
        return Number("none", None)
    low, high = map(float, ends)
    return Number(f"[{low:+.3f}, {high:+.3f}]", low)
