"""The tables of a report: contrasts, also by level, accuracy, cost and evictions of each arm, and other tests."""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from markupsafe import Markup

from analysis.judgement import eviction_counts
from analysis.judgement.study_table import EXCLUDED, NOT_RUN
from analysis.rules import judged_numbers
from figures.drawing import formatting
from figures.drawing.table_rows import cell_of
from figures.plots.accuracy import arm_accuracy
from figures.report_page.rendering import NO_NUMBER, Cell, NumberCell, decimal_cell, percent_cell, table
from protocol.formats.text_tables import format_count

CELL_FIELDS = ("model", "task", "budget")
CONTRAST_FIELDS = ("model", "task", "budget", "subject", "against")
ARM_FIELDS = ("model", "task", "budget", "arm")
METHODS = ("bootstrap", "t", "sign-flip")
# why a contrast has an interpolated difference or not
INTERPOLATION_REASONS = {
    "matched": "not needed: memory matched",
    "interpolated": "interpolated",
    "outside": "none: outside the range of measured budgets",
    "too few": "none: too few problems",
}


def contrasts_table(caption: str, rows: Sequence[Mapping[str, Any]]) -> Markup:
    heads = [*CELL_FIELDS, "subject", "against", "problems", "gains", "losses", "Δ (pp)"]
    p = "p that decides" if any(map(judged_numbers.has_decisive_numbers, rows)) else "p, uncorrected"
    heads += ["95 % interval, uncorrected", "simultaneous interval", p, "cache ratio", "worst ratio", "says"]
    cells, charges = list(map(_contrast_cells, rows)), list(map(formatting.memory_charge, rows))
    if any(contrast.get("low_margin") is not None for contrast in rows):
        column = heads.index("simultaneous interval") + 1
        heads.insert(column, "limits about the margin")
        for row, contrast in zip(cells, rows, strict=True):
            is_estimated = contrast.get("low_margin") is not None
            row.insert(
                column, _interval_cell(contrast, "_margin") if is_estimated else NumberCell("not estimated", None)
            )
    if any(charges):
        heads.insert(-1, "charged for memory (pp)")
        for row, charge in zip(cells, charges, strict=True):
            row.insert(-1, NumberCell(charge, None))
    return table(caption, heads, cells)


def _contrast_cells(contrast: Mapping[str, Any]) -> list[Cell]:
    counts = (
        NumberCell(formatting.format_size(contrast), contrast["n"]),
        *(NumberCell.of_count(contrast[name]) for name in ("gains", "losses")),
    )
    row: list[Cell] = [*cell_of(contrast), contrast["subject"], contrast["against"], *counts]
    if contrast["difference"] is None:
        return [*row, *[NumberCell("not estimated", None)] * 6, "nothing"]
    row += [
        _points_cell(contrast, "difference"),
        _interval_cell(contrast, ""),
        _interval_cell(contrast, "_simultaneous"),
    ]
    return [
        *row,
        _p_cell(judged_numbers.decisive_p(contrast)),
        decimal_cell(contrast["cache_ratio"], 3),
        decimal_cell(contrast["cache_worst"], 3),
        _format_outcome(contrast),
    ]


def _format_outcome(contrast: Mapping[str, Any]) -> str:
    mark = "better" if contrast["better"] else "worse" if contrast["worse"] else "neither"
    if contrast["matched"]:
        return formatting.idle_text(contrast) or mark
    return f"{mark}, memory unmatched" if contrast.get("saves") is None else f"{mark}, saves no memory"


def arms_table(judged: Mapping[str, Any], lanes: Any) -> Markup:
    """Render the table of arms. lanes: those of `study_files.read`. Columns that no arm has are left out."""
    by_arm = dict(list(lanes.groupby([*CELL_FIELDS, "arm"])))
    optional_columns = {
        "mean_reads": "slots read by a token, mean",
        "mean_state_bytes": "policy state, bytes",
        "disagreements": "second grader disagrees",
        "scores_apart": "mean difference of scores",
        "timeouts": "grader timeouts",
    }
    optional_columns = {name: head for name, head in optional_columns.items() if name in judged["arms"][0]}
    heads = [*CELL_FIELDS, "arm", "problems", "accuracy, %", "95 % interval", "slots, mean", "slots, peak"]
    heads += ["cache, bytes", "tokens, mean", "no answer", "truncated", *optional_columns.values()]
    rows = []
    for arm in judged["arms"]:
        summary = arm_accuracy(by_arm[*cell_of(arm), arm["arm"]])
        interval = NO_NUMBER
        if not math.isnan(summary.mean):
            interval = NumberCell(f"[{100 * summary.low:.1f}, {100 * summary.high:.1f}]", summary.low)
        row: list[Cell] = [*cell_of(arm), arm["arm"], NumberCell.of_count(arm["n"])]
        row += [percent_cell(arm["accuracy"]), interval]
        row += [decimal_cell(arm["mean_slots"], 1), decimal_cell(arm["peak_slots"], 1)]
        row += [decimal_cell(arm["mean_bytes"], 0), decimal_cell(arm["mean_tokens"], 1)]
        unanswered = NO_NUMBER if formatting.was_fed(judged, arm) else NumberCell.of_count(arm["no_answer"])
        row += [unanswered, NumberCell.of_count(arm["truncated"])]
        row += [decimal_cell(arm[name], 3 if name == "scores_apart" else 0) for name in optional_columns]
        rows.append(row)
    return table("Accuracy and cost of every arm (exploratory)", heads, rows)


def gate_table(gate: Mapping[str, Any]) -> Markup:
    """Render what the full cache reached on the held-out problems, next to the registered bar."""
    heads = ["model", "task", "lanes", "accuracy, %", "at least, %", "cut, %", "at most, %", "no answer, %"]
    heads += ["published, %", "passed"]
    rows: list[list[Cell]] = [
        [
            gated["model"],
            gated["task"],
            NumberCell.of_count(gated["lanes"]),
            *(percent_cell(gated[name]) for name in ("accuracy", "needed", "cut", "at_most", "no_answer")),
            " ± ".join(percent_cell(gated[name]).text for name in ("published", "margin") if name in gated),
            "yes" if gated["passed"] else "no",
        ]
        for gated in gate["places"]
    ]
    return table(f"The gate: {gate['arm']}, which never evicts, on the held-out problems", heads, rows)


def states_table(lanes: Any, attempts: int) -> Markup:
    """Render how every registered lane ended, one row for each arm of a cell, over all seeds and attempts."""
    heads = [*CELL_FIELDS, "arm", "registered", "ok", "failed", "excluded", "not run", "without a grade"]
    rows: list[list[Cell]] = []
    for key, arm_lanes in lanes.groupby([*CELL_FIELDS, "arm"], sort=False):
        end_counts = [int((arm_lanes["state"] == state).sum()) for state in ("ok", "failed", EXCLUDED, NOT_RUN)]
        ungraded = int((arm_lanes["correct"].isna() & (arm_lanes["state"] != EXCLUDED)).sum())
        rows.append([*map(str, key), *map(NumberCell.of_count, [len(arm_lanes), *end_counts, ungraded])])
    return table(f"Outcome of every registered lane, in {format_count(attempts, 'attempt')}", heads, rows)


def methods_table(judged: Mapping[str, Any]) -> Markup:
    """Render p of every contrast by each method, and after Holm's correction."""
    heads = [*CELL_FIELDS, "subject", "against", *(f"p, {name}" for name in METHODS), "p, Holm"]
    keys = [f"p_{name.replace('-', '_')}" for name in METHODS]
    rows = [
        [
            *cell_of(contrast),
            contrast["subject"],
            contrast["against"],
            *(_p_cell(contrast[key]) for key in (*keys, "p_holm")),
        ]
        for contrast in judged["contrasts"]
    ]
    return table(f"Other methods on the registered contrasts; {judged['method']} decides", heads, rows)


def count_passing(judged: Mapping[str, Any]) -> dict[str, int]:
    """Count the registered contrasts with p at or below the Bonferroni level, by method; for the adjusted p
    of Holm and, if registered, max-t, at or below alpha. A method without p values is left out.
    """
    corrected, alpha = float(judged["corrected_alpha"]), float(judged["alpha"])
    levels = {name: (f"p_{name.replace('-', '_')}", corrected) for name in METHODS} | {"Holm": ("p_holm", alpha)}
    if judged["method"] == "max-t":
        levels["max-t"] = "p_adjusted", alpha
    rows = [contrast for contrast in judged["contrasts"] if contrast["difference"] is not None]
    return {
        name: sum(float(contrast[key]) <= level for contrast in rows)
        for name, (key, level) in levels.items()
        if all(contrast[key] is not None for contrast in rows)
    }


def isocache_table(rows: Sequence[Mapping[str, Any]]) -> Markup:
    """Render the memory match problem by problem and, where it fails, the difference at equal memory. If
    memory is not matched by slots, the ratio of mean slots is added.
    """
    matched_by = formatting.memory_basis(rows)
    unit = "slots" if matched_by == "slots" else "bytes"
    heads = [*CELL_FIELDS, "subject", "against", f"{unit} ratio", "problems within tolerance, %"]
    heads += [f"Δ at equal {unit} (pp)", "95 % interval", "p", "interpolated"]
    if matched_by != "slots":
        heads.append("ratio of mean slots")
    table_rows: list[list[Cell]] = []
    for contrast in rows:
        cache = contrast["isocache"]
        row: list[Cell] = [*cell_of(contrast), contrast["subject"], contrast["against"]]
        row += [decimal_cell(cache["ratio"], 3), percent_cell(cache["within"])]
        interpolated = cache["interpolated"]
        if interpolated is None:
            row += [NO_NUMBER] * 3
        else:
            row += [
                _points_cell(interpolated, "difference"),
                _interval_cell(interpolated, ""),
                _p_cell(interpolated["p"]),
            ]
        row.append(INTERPOLATION_REASONS.get(cache["why"], cache["why"]))
        if matched_by != "slots":
            row.append(decimal_cell((contrast.get("memory") or {"ratios": {}})["ratios"].get("slots"), 3))
        table_rows.append(row)
    return table("Equal memory, problem by problem (decides nothing)", heads, table_rows)


def _p_cell(value: Any) -> NumberCell:
    return NO_NUMBER if value is None else NumberCell(judged_numbers.format_p(value), float(value))


def _points_cell(contrast: Mapping[str, Any], name: str) -> NumberCell:
    return NumberCell(judged_numbers.format_points(contrast[name]), float(contrast[name]))


def _interval_cell(contrast: Mapping[str, Any], kind: str) -> NumberCell:
    low, high = contrast[f"low{kind}"], contrast[f"high{kind}"]
    return NumberCell(judged_numbers.format_interval(low, high), float(low))


def evictions_table(rows: Sequence[Mapping[str, Any]]) -> Markup:
    heads = [*ARM_FIELDS, "lanes", "never evicted", "of lanes, %", "events, mean", "least", "most", "budget, slots"]
    heads += [f"{ratio.text}, %" for ratio in eviction_counts.OF_BUDGET.values()]
    cells: list[list[Cell]] = [
        [
            *(row[name] for name in ARM_FIELDS),
            NumberCell.of_count(row["lanes"]),
            NumberCell.of_count(row["never"]),
            decimal_cell(100 * Fraction(row["never"], row["lanes"]), 1),
            decimal_cell(row["events"]["mean"], 1),
            *(NumberCell.of_count(row["events"][name]) for name in ("least", "most")),
            decimal_cell(row["slots"], 1),
            *(decimal_cell(None if share is None else 100 * share, 1) for share in row["of_budget"].values()),
        ]
        for row in rows
    ]
    return table("Evicted and retained slots (exploratory)", heads, cells)


def ratios_table(rows: Sequence[Mapping[str, Any]]) -> Markup:
    cells = [
        [*(row[name] for name in ARM_FIELDS), *(decimal_cell(ratio, 3) for ratio in row["ratios"].values())]
        for row in rows
    ]
    return table("The same cache, by each ratio in use (exploratory)", [*ARM_FIELDS, *eviction_counts.RATIOS], cells)


def levels_table(rows: Sequence[Mapping[str, Any]]) -> Markup:
    """Render the table. rows: of `analysis.exploratory.level_contrasts`; empty without any."""
    if not rows:
        return Markup("")
    heads = [*CONTRAST_FIELDS, "level", "problems", "gains", "losses", "subject, %", "comparator, %", "Δ (pp)"]
    cells = [_level_cells(row) for row in rows]
    return table("Contrasts by level (exploratory)", [*heads, "95 % interval"], cells)


def _level_cells(row: Mapping[str, Any]) -> list[Cell]:
    cells: list[Cell] = [*(row[name] for name in CONTRAST_FIELDS), row["level"]]
    cells += [NumberCell.of_count(row[name]) for name in ("n", "gains", "losses")]
    cells += [percent_cell(row[name]) for name in ("own", "other")]
    if row["difference"] is None:
        return [*cells, NO_NUMBER, NO_NUMBER]
    difference, low, high = (f"{row[name]:.6f}" for name in ("difference", "low", "high"))
    interval = NumberCell(judged_numbers.format_interval(low, high), row["low"])
    return [*cells, NumberCell(judged_numbers.format_points(difference), row["difference"]), interval]
