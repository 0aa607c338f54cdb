"""The report's section on labelled traces: how they ended, and the registered test of a signal."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup

from figures.report_page.rendering import NO_NUMBER, Cell, NumberCell, decimal_cell, percent_cell, render, table
from protocol.instruments.anatomy.analysis.report_text import SLIP_NOTE, format_slip, name_beyond
from protocol.instruments.anatomy.analysis.screening import measure_policies
from protocol.instruments.anatomy.analysis.traces import NothingLabelled
from protocol.instruments.anatomy.drawings.trace_report import AnatomyReport, read_report, status_lines
from protocol.instruments.anatomy.fields import HALVES, STATES

NOTE = (
    "Development problems only: no verdict on a policy depends on any of this. A token is needed if "
    "occluding a window over it changed the answer's grade. docs/anatomy.md says what may be concluded."
)
STUDENT_INTERVAL = "interval (Student)"


def render_section(folder: Path) -> Markup | None:
    """Render the section of a study without its drawings; None if nothing was labelled."""
    try:
        return render_anatomy(read_report(folder))
    except NothingLabelled:
        return None


def render_anatomy(traces: AnatomyReport) -> Markup:
    return render(
        "protocol/instruments/anatomy/drawings/section.html",
        notes=[NOTE, *(f"{note.rstrip('.')}." for note in status_lines(traces))],
        states_table=_states_table(traces),
        verdict=traces.verdict,
        tests_table="" if traces.verdict is None else _tests_table(traces.verdict),
        agreement_table=_agreement_table(traces),
        slip_note=SLIP_NOTE,
        slip_lines=[line for pair in (traces.verdict or {"pairs": []})["pairs"] for line in format_slip(pair)],
    )


def _states_table(traces: AnatomyReport) -> Markup:
    rows: list[list[Cell]] = [
        [
            *pair,
            half,
            NumberCell.of_count(len(traces.anatomy.traces_of(pair, half))),
            *map(NumberCell.of_count, traces.anatomy.states(pair, half).values()),
        ]
        for pair in traces.anatomy.pairs
        for half in HALVES
    ]
    return table("Traces by half", ["model", "task", "half", "traces", *STATES], rows)


def _agreement_table(traces: AnatomyReport) -> Markup:
    heads = ["model", "task", "budget", "arm", "traces", "needed tokens kept, %", "AUC"]
    rows: list[list[Cell]] = [
        [
            agreement.model,
            agreement.task,
            agreement.budget,
            agreement.arm,
            NumberCell.of_count(agreement.traces),
            percent_cell(agreement.kept),
            decimal_cell(agreement.auc, 3),
            NumberCell("none", None)
            if agreement.interval is None
            else NumberCell("[{:.3f}, {:.3f}]".format(*agreement.interval), agreement.interval[0]),
            percent_cell(agreement.accuracy),
        ]
        for agreement in measure_policies(traces.anatomy)
    ]
    heads += ["95 % interval", "correct at the cut, %"]
    return table("Agreement with labels (exploratory)", heads, rows) if rows else Markup("")


def _tests_table(verdict: Mapping[str, Any]) -> Markup:
    coverage = f"{100 * float(verdict['coverage']):.4g} %"
    heads = ["model", "task", "says", "signal", "layer", "traces", "mean rho", "p", f"{coverage} {STUDENT_INTERVAL}"]
    heads += [
        "bootstrap",
        "Fisher, n = traces",
        name_beyond(verdict),
        f"{name_beyond(verdict)} says",
        "AUC",
        "pooled rho",
        "position alone",
    ]
    return table("Chosen on one half, tested on the other", heads, [_test_cells(row) for row in verdict["pairs"]])


def _test_cells(row: Mapping[str, Any]) -> list[Cell]:
    first: list[Cell] = [row["model"], row["task"], row["word"]]
    if row["signal"] is None or row["rho"] is None:
        chosen = ["nothing chosen" if row["signal"] is None else row["signal"]]
        return [
            *first,
            *chosen,
            _layer_cell(row),
            NumberCell.of_count(row["units"]),
            *[NO_NUMBER] * 6,
            "",
            *[NO_NUMBER] * 3,
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


def _layer_cell(row: Mapping[str, Any]) -> NumberCell:
    return NO_NUMBER if row["layer"] is None else NumberCell.of_count(row["layer"])


def _number_cell(value: str | None, form: str = "{:+.3f}") -> NumberCell:
    return NO_NUMBER if value is None else NumberCell(form.format(float(value)), float(value))


def _interval_cell(ends: list[str] | None) -> NumberCell:
    if ends is None:
        return NumberCell("none", None)
    low, high = map(float, ends)
    return NumberCell(f"[{low:+.3f}, {high:+.3f}]", low)
