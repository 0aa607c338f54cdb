"""The report's section on labelled traces: how they ended, and the registered test of a signal."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from analysis.anatomy.policy_agreement import measure_policies
from analysis.anatomy.traces import HALVES, STATES, NothingLabelled
from figures.drawing.anatomy_report import AnatomyReport, read_report, status_lines
from figures.report_page.markup import Html, NumberCell, element, paragraphs, table

__all__ = ["render_section"]

NOTE = (
    "Development problems alone: no verdict on a policy depends on any of this. A token is needed where a window "
    "over it was occluded and the answer's grade changed. docs/anatomy.md says what may be concluded."
)
STUDENT_INTERVAL = "interval (Student)"


def render_section(folder: Path) -> Html | None:
    """Render the section of a study without its drawings; None if nothing was labelled."""
    try:
        return render_anatomy(read_report(folder))
    except NothingLabelled:
        return None


def render_anatomy(traces: AnatomyReport) -> Html:
    return Html(
        paragraphs(NOTE, *(f"{note.rstrip('.')}." for note in status_lines(traces)))
        + _states_table(traces)
        + (_tests_table(traces.verdict) if traces.verdict is not None else Html(""))
        + _agreement_table(traces)
    )


def _states_table(traces: AnatomyReport) -> Html:
    rows: list[list[str | NumberCell]] = [
        [
            *pair,
            half,
            NumberCell.of_count(len(traces.anatomy.traces_of(pair, half))),
            *map(NumberCell.of_count, traces.anatomy.states(pair, half).values()),
        ]
        for pair in traces.anatomy.pairs
        for half in HALVES
    ]
    return Html(
        element("h3", "How the traces ended")
        + paragraphs(
            "wrong: with its whole cache, so that there is no label; short: shorter than a window; "
            "unreproduced: graded otherwise when it was continued from the cut with nothing occluded; "
            "unmoved: no occlusion changed the grade. None is left out silently; labelled and unmoved ones "
            "alone have labels."
        )
        + table("Traces by half", ["model", "task", "half", "traces", *STATES], rows)
    )


def _agreement_table(traces: AnatomyReport) -> Html:
    heads = ["model", "task", "budget", "arm", "traces", "needed tokens kept, %", "AUC"]
    rows: list[list[str | NumberCell]] = [
        [
            agreement.model,
            agreement.task,
            agreement.budget,
            agreement.arm,
            NumberCell.of_count(agreement.traces),
            NumberCell(f"{100 * agreement.kept:.1f}", agreement.kept),
            NumberCell(f"{agreement.auc:.3f}", agreement.auc),
            NumberCell("none", None)
            if agreement.low is None
            else NumberCell(f"[{agreement.low:.3f}, {agreement.high:.3f}]", agreement.low),
            NumberCell(f"{100 * agreement.accuracy:.1f}", agreement.accuracy),
        ]
        for agreement in measure_policies(traces.lock, traces.anatomy)
    ]
    if not rows:
        return Html("")
    return Html(
        element("h3", "What arms kept of the needed tokens")
        + paragraphs(
            "One eviction, at the cut. AUC .5: needed tokens are kept as often as others. The oracle, which "
            "knows the labels, is no arm and is left out. Intervals of each row by itself."
        )
        + table("Agreement with labels (exploratory)", [*heads, "95 % interval", "correct at the cut, %"], rows)
    )


def _tests_table(verdict: Mapping[str, Any]) -> Html:
    coverage = f"{100 * float(verdict['coverage']):.4g} %"
    heads = ["model", "task", "says", "signal", "layer", "traces", "mean rho", "p", f"{coverage} {STUDENT_INTERVAL}"]
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
        + paragraphs(
            f"Chosen on the one half, tested on the other in the reading {verdict['reading']}, one-sided at "
            f"{float(verdict['level']):.4g}. AGREES: within traces, the chosen signal ranks needed tokens as "
            "on the choosing half; not that an arm which scores by it answers better. "
            "Beyond position: the place of the token held. Pooled: tokens of all traces together, as EpiKV "
            "prints it, which differences between traces move too."
        )
        + table("Chosen on one half, tested on the other", heads, [_test_cells(row) for row in verdict["pairs"]])
    )


def _test_cells(row: Mapping[str, Any]) -> list[str | NumberCell]:
    first: list[str | NumberCell] = [row["model"], row["task"], row["word"]]
    if row["signal"] is None or row["rho"] is None:
        chosen = ["nothing chosen" if row["signal"] is None else row["signal"]]
        return [
            *first,
            *chosen,
            _layer_cell(row),
            NumberCell.of_count(row["units"]),
            *[NumberCell("", None)] * 6,
            "",
            *_EMPTY_CELLS,
        ]
    rho, beyond_position = row["rho"], row["beyond_position"]
    return [
        *first,
        row["signal"],
        _layer_cell(row),
        NumberCell.of_count(rho["units"]),
        _number_cell(rho["mean"]),
        NumberCell(f"{float(rho['p']):.6f}", float(rho["p"])),
        *(_interval_cell(rho[name]) for name in ("interval", "bootstrap", "fisher")),
        _number_cell(beyond_position["mean"]),
        beyond_position["word"],
        _number_cell(row["auc"], "{:.3f}"),
        _number_cell((row["pooled"] or {}).get("rho")),
        _number_cell(row["position"]),
    ]


_EMPTY_CELLS = [NumberCell("", None)] * 3


def _layer_cell(row: Mapping[str, Any]) -> NumberCell:
    return NumberCell("", None) if row["layer"] is None else NumberCell.of_count(row["layer"])


def _number_cell(value: str | None, form: str = "{:+.3f}") -> NumberCell:
    return NumberCell("", None) if value is None else NumberCell(form.format(float(value)), float(value))


def _interval_cell(ends: list[str] | None) -> NumberCell:
    if ends is None:
        return NumberCell("none", None)
    low, high = map(float, ends)
    return NumberCell(f"[{low:+.3f}, {high:+.3f}]", low)
