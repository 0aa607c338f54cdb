"""The tables of a report: contrasts, accuracy and cost of each arm, how its lanes ended, and other tests."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from analysis.studies.study_files import EXCLUDED, NOT_RUN
from figures.canvas import numbers
from figures.canvas.rows import place
from figures.html.markup import Html, Number, table
from figures.plots.accuracy import solved

__all__ = ["arms", "contrasts", "gate", "isocache", "methods", "passing", "states"]

PLACE = ("model", "task", "budget")
METHODS = ("bootstrap", "t", "sign-flip")
# why a contrast has an interpolated difference or not
WHY = {
    "matched": "not needed: matched",
    "interpolated": "interpolated",
    "outside": "none: outside of every pair of budgets",
    "too few": "none: too few problems",
}


def contrasts(caption: str, rows: Sequence[Mapping[str, Any]]) -> Html:
    heads = [*PLACE, "subject", "against", "problems", "gains", "losses", "Δ (pp)"]
    heads += ["95 % interval", "simultaneous interval", "p", "cache ratio", "worst ratio", "says"]
    cells, charges = [_contrast(one) for one in rows], [numbers.charge(one) for one in rows]
    if any(one.get("low_margin") is not None for one in rows):
        at = heads.index("simultaneous interval") + 1
        heads.insert(at, "limits about the margin")
        for row, one in zip(cells, rows, strict=True):
            known = one.get("low_margin") is not None
            row.insert(at, _interval(one, "_margin") if known else Number("not estimated", None))
    if any(charges):
        heads.insert(-1, "charged for memory (pp)")
        for row, charge in zip(cells, charges, strict=True):
            row.insert(-1, Number(charge, None))
    return table(caption, heads, cells)


def _contrast(one: Mapping[str, Any]) -> list[str | Number]:
    counts = Number(numbers.size(one), one["n"]), *(Number.of(one[name]) for name in ("gains", "losses"))
    row: list[str | Number] = [*place(one), one["subject"], one["against"], *counts]
    if one["difference"] is None:
        return [*row, *[Number("not estimated", None)] * 6, "nothing"]
    row += [_points(one, "difference"), _interval(one, ""), _interval(one, "_simultaneous")]
    return [*row, _p(one["p"]), _decimal(one["cache_ratio"], 3), _decimal(one["cache_worst"], 3), _says(one)]


def _says(one: Mapping[str, Any]) -> str:
    mark = "better" if one["better"] else "worse" if one["worse"] else "neither"
    if one["matched"]:
        return mark
    return f"{mark}, memory unmatched" if one.get("saves") is None else f"{mark}, saves no memory"


def arms(judged: Mapping[str, Any], lanes: Any) -> Html:
    """Render the table of arms. lanes: those of `study_files.read`. Columns that no arm of the study has are
    left out.
    """
    by_arm = dict(list(lanes.groupby([*PLACE, "arm"])))
    more = {
        "mean_state_bytes": "policy state, bytes",
        "disagreements": "second grader disagrees",
        "scores_apart": "scores apart, mean",
        "timeouts": "grader timeouts",
    }
    more = {name: head for name, head in more.items() if name in judged["arms"][0]}
    heads = [*PLACE, "arm", "problems", "accuracy, %", "95 % interval", "slots, mean", "slots, peak"]
    heads += ["cache, bytes", "tokens, mean", "no answer", "truncated", *more.values()]
    rows = []
    for one in judged["arms"]:
        own = solved(by_arm[*place(one), one["arm"]])
        interval = Number("", None)
        if not math.isnan(own.mean):
            interval = Number(f"[{100 * own.low:.1f}, {100 * own.high:.1f}]", own.low)
        row: list[str | Number] = [*place(one), one["arm"], Number.of(one["n"])]
        row += [_percent(one["accuracy"]), interval]
        row += [_decimal(one["mean_slots"], 1), _decimal(one["peak_slots"], 1)]
        row += [_decimal(one["mean_bytes"], 0), _decimal(one["mean_tokens"], 1)]
        row += [Number.of(one["no_answer"]), Number.of(one["truncated"])]
        row += [_decimal(one[name], 3 if name == "scores_apart" else 0) for name in more]
        rows.append(row)
    return table("Accuracy and cost of every arm (exploratory)", heads, rows)


def gate(gate: Mapping[str, Any]) -> Html:
    """Render what the full cache reached on the held-out problems, next to the registered bar."""
    heads = ["model", "task", "lanes", "accuracy, %", "at least, %", "cut, %", "at most, %", "no answer, %"]
    heads += ["published, %", "passed"]
    rows: list[list[str | Number]] = [
        [
            one["model"],
            one["task"],
            Number.of(one["lanes"]),
            *(_percent(one[name]) for name in ("accuracy", "needed", "cut", "at_most", "no_answer")),
            " ± ".join(_percent(one[name]).text for name in ("published", "margin") if name in one),
            "yes" if one["passed"] else "no",
        ]
        for one in gate["places"]
    ]
    return table(f"The gate: {gate['arm']}, which never evicts, on the held-out problems", heads, rows)


def states(lanes: Any, attempts: int) -> Html:
    """Render how every registered lane ended, one row for each arm of a cell, over all seeds and attempts."""
    heads = [*PLACE, "arm", "registered", "ok", "failed", "excluded", "not run", "without a grade"]
    rows: list[list[str | Number]] = []
    for key, own in lanes.groupby([*PLACE, "arm"], sort=False):
        ended = [int((own["state"] == state).sum()) for state in ("ok", "failed", EXCLUDED, NOT_RUN)]
        ungraded = int((own["correct"].isna() & (own["state"] != EXCLUDED)).sum())
        rows.append([*map(str, key), *map(Number.of, [len(own), *ended, ungraded])])
    counted = f"{attempts} attempt" if attempts == 1 else f"{attempts} attempts"
    return table(f"What became of every registered lane, in {counted}", heads, rows)


def methods(judged: Mapping[str, Any]) -> Html:
    """Render p of every contrast by each method, and after Holm's correction."""
    heads = [*PLACE, "subject", "against", *(f"p, {name}" for name in METHODS), "p, Holm"]
    keys = [f"p_{name.replace('-', '_')}" for name in METHODS]
    rows = [
        [*place(one), one["subject"], one["against"], *(_p(one[key]) for key in (*keys, "p_holm"))]
        for one in judged["contrasts"]
    ]
    return table(f"Other methods on the registered contrasts; {judged['method']} decides", heads, rows)


def passing(judged: Mapping[str, Any]) -> dict[str, int]:
    """Count the registered contrasts with p at or below the Bonferroni level, by method; for the adjusted p
    of Holm and, if registered, max-t, at or below alpha. A method without p values is left out.
    """
    corrected, alpha = float(judged["corrected_alpha"]), float(judged["alpha"])
    levels = {name: (f"p_{name.replace('-', '_')}", corrected) for name in METHODS} | {
        "Holm": ("p_holm", alpha)
    }
    if judged["method"] == "max-t":
        levels["max-t"] = "p_adjusted", alpha
    rows = [one for one in judged["contrasts"] if one["difference"] is not None]
    return {
        name: sum(float(one[key]) <= level for one in rows)
        for name, (key, level) in levels.items()
        if all(one[key] is not None for one in rows)
    }


def isocache(rows: Sequence[Mapping[str, Any]]) -> Html:
    """Render the memory match problem by problem and, where it fails, the difference at equal memory. If
    memory is not matched by slots, the ratio of mean slots is added.
    """
    by = numbers.matched_by(rows)
    held = "slots" if by == "slots" else "bytes"
    heads = [*PLACE, "subject", "against", f"{held} ratio", "problems within tolerance, %"]
    heads += [f"Δ at equal {held} (pp)", "95 % interval", "p", "interpolated"]
    if by != "slots":
        heads.append("slots ratio, of means")
    printed: list[list[str | Number]] = []
    for one in rows:
        cache = one["isocache"]
        row: list[str | Number] = [*place(one), one["subject"], one["against"]]
        row += [_decimal(cache["ratio"], 3), _percent(cache["within"])]
        found = cache["interpolated"]
        if found is None:
            row += [Number("", None)] * 3
        else:
            row += [_points(found, "difference"), _interval(found, ""), _p(found["p"])]
        row.append(WHY.get(cache["why"], cache["why"]))
        if by != "slots":
            row.append(_decimal((one.get("memory") or {"ratios": {}})["ratios"].get("slots"), 3))
        printed.append(row)
    return table("Equal memory, problem by problem; it decides nothing", heads, printed)


def _decimal(value: Any, digits: int) -> Number:
    return Number("", None) if value is None else Number(f"{float(value):,.{digits}f}", float(value))


def _percent(value: Any) -> Number:
    return Number("", None) if value is None else Number(f"{100 * float(value):.1f}", float(value))


def _p(value: Any) -> Number:
    return Number("", None) if value is None else Number(numbers.p_value(value), float(value))


def _points(one: Mapping[str, Any], name: str) -> Number:
    return Number(numbers.points(one[name]), float(one[name]))


def _interval(one: Mapping[str, Any], kind: str) -> Number:
    low, high = one[f"low{kind}"], one[f"high{kind}"]
    return Number(numbers.interval(low, high), float(low))
