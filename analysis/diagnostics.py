"""Look for the known ways in which evaluations of eviction fail, in a finished study.

    kv-prereg diagnostics registrations/alpha-chain
    kv-prereg diagnostics registrations/alpha-chain --json

The failure modes of "Minimal-Intervention KV Retention via Set-Conditioned Diversity", section 3.2: memory
that matches at the end of the prefill but not in the mean; signs that 50 problems get wrong; proxies that the
full run does not confirm; a single model; wrong answers that contain no answer. Each is "seen", "not seen" or
"cannot tell", with the numbers. All of this is exploratory and decides nothing. Reads lock, verdict and records,
and the selection of a sweep.

Exit status: 0 printed, whatever was seen; 2 no verdict yet, or the folder cannot be read.
"""

import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.judgement import failure_modes, untrusted_files
from analysis.judgement.contrasts import Pairing, apply_missing_rule, pair_arms
from analysis.judgement.failure_modes import Development
from analysis.judgement.judged_folder import read_judged
from analysis.judgement.judging_rules import read_judging
from analysis.judgement.outside_runs import refuse_outside
from analysis.judgement.study_files import read_development_differences, read_study
from analysis.judgement.study_table import LANE_COLUMNS
from analysis.judgement.untrusted_files import RecordError
from analysis.rules import full_cache_gate, verdict_line
from analysis.rules.rule import arm_pairs
from analysis.stats.methods import draws_and_seed
from protocol.formats import text_tables
from protocol.formats.reading_command import run_command
from protocol.formats.text_tables import format_points

DRAWS = 10_000  # draws for the intervals at equal memory
MODES = {
    "iso_cache": "memory matched only at the end of the prefill",
    "small_sample": "a sample of fifty problems could have given another result",
    "proxies": "a proxy measure that the full run does not confirm",
    "single_model": "a difference whose sign changes on another model",
    "extraction_collapse": "wrong answers that contain no answer",
}


def diagnose(folder: Path) -> dict[str, Any]:
    """Return the report of FOLDER. Raises RecordError without a verdict or for records that cannot be read."""
    folder = Path(folder)
    judged, study = read_judged(folder), read_study(folder)
    refuse_outside(folder, study.lock)
    content = study.lock["protocol"]["content"]
    decision = content["decision"]
    tolerance = float(decision["cache_tolerance"])
    graded = apply_missing_rule(study).study
    lanes = graded.lanes.merge(read_measurements(folder), how="left", on=LANE_COLUMNS)
    arms = dict(list(lanes.groupby(["model", "task", "budget", "arm"], sort=False)))
    pairs = pair_arms(graded, arm_pairs(decision))
    modes = {
        "iso_cache": failure_modes.iso_cache(
            [pair for pair in pairs if not pair.full],
            arms,
            tolerance=tolerance,
            budgets=content["budgets"],
            times=DRAWS,
            seed=draws_and_seed(decision)[1],
            lock=study.lock,
        ),
        "small_sample": failure_modes.small_sample(pairs, decision, judged["contrasts"], read_judging(study.lock)),
        "proxies": failure_modes.proxies(
            lanes, tolerance, _development_differences(folder, content, pairs), shared=_has_shared_batches(study.lock)
        ),
        "single_model": failure_modes.single_model(pairs),
        "extraction_collapse": failure_modes.extraction_collapse(arms),
    }
    return {
        "name": study.lock["name"],
        "title": content["title"],
        "verdict": verdict_line.verdict_word(judged),
        "said": verdict_line.format_line(judged, full_cache_gate.describe_failure(judged)),
        "modes": modes,
        "memory": [_memory_row(cell, arm) for cell, arm in arms.items()],
    }


def read_measurements(folder: Path) -> pd.DataFrame:
    """Return LANE_COLUMNS, `prefill_end` (slots), `peak_bytes`, and `seconds` from joining to leaving the
    batch of each successful confirm record of FOLDER. Raises RecordError.
    """
    rows = []
    for name, number, line in untrusted_files.read_shards(folder / "records"):
        record = json.loads(line)
        body = record["body"]
        if body["phase"] != "confirm" or body["state"] != "ok":
            continue
        try:
            seconds = float(record["costs"]["decode_seconds"])
        except (KeyError, TypeError, ValueError):
            seconds = math.nan
        if not math.isfinite(seconds):
            raise RecordError(f"{name}:{number}: costs.decode_seconds: not a finite number")
        lane = [*(body["cell"][name] for name in LANE_COLUMNS[:-1]), body["problem"]]
        cache = body["cache"]
        rows.append([*lane, float(cache["prefill_end"]), float(cache["peak_bytes"]), seconds])
    return pd.DataFrame(rows, columns=[*LANE_COLUMNS, "prefill_end", "peak_bytes", "seconds"])


def _development_differences(folder: Path, content: Mapping[str, Any], pairs: Sequence[Pairing]) -> list[Development]:
    """Return the differences of a sweep's winner to its baseline on development and held-out problems."""
    if "sweep" not in content:
        return []
    by_cell = read_development_differences(folder)
    return [
        Development(*pair[:3], by_cell[pair[:3]], float(pair.difference.mean()))
        for pair in pairs
        if pair.against == content["sweep"]["baseline"] and pair[:3] in by_cell
    ]


def _has_shared_batches(lock: Mapping[str, Any]) -> bool:
    """Return whether lanes of several arms were batched; some locks of version 1 do not say it, and they were."""
    return max(lock.get("batch", {}).get("lanes", {}).values(), default=2) > 1


def _memory_row(cell: tuple[str, ...], lanes: pd.DataFrame) -> dict[str, Any]:
    """Return slots per KV head and layer, and bytes: means over lanes, and peaks of any lane."""
    return {
        **dict(zip(("model", "task", "budget", "arm"), cell, strict=True)),
        "prefill_end": float(lanes["prefill_end"].mean()),
        "mean_slots": float(lanes["mean_slots"].mean()),
        "peak_slots": float(lanes["peak_slots"].max()),
        "mean_bytes": float(lanes["mean_bytes"].mean()),
        "peak_bytes": float(lanes["peak_bytes"].max()),
    }


def _format_report(report: Mapping[str, Any]) -> list[str]:
    lines = [report["title"], f"verdict: {report['said']}", "Exploratory."]
    for name, about in MODES.items():
        mode = report["modes"][name]
        lines += ["", f"{mode['verdict'].upper()}: {about}", *text_tables.wrap_paragraph(mode["says"])]
        if mode["rows"]:
            head, cells = TABLES[name]
            lines += text_tables.format_columns(head, map(cells, mode["rows"]))
    lines += ["", "Memory: slots per KV head and layer, and bytes; a peak is the maximum over all lanes"]
    numbers = ("prefill_end", "mean_slots", "peak_slots", "mean_bytes", "peak_bytes")
    head = (*CELL_COLUMNS, "arm", "prefill end", "mean", "peak", "mean bytes", "peak bytes")
    rows = [
        (*_cell_labels(row), row["arm"], *(_format_number(row[name]) for name in numbers)) for row in report["memory"]
    ]
    return lines + text_tables.format_columns(head, rows)


CELL_COLUMNS = ("model", "task", "budget")
Row = Mapping[str, Any]


def _iso_cache(row: Row) -> tuple[str, ...]:
    names = ("prefill_end", "mean", "peak", "mean_bytes")
    ratios = (f"{float(row['ratios'][name]):.4f}" if row["ratios"] else "" for name in names)
    at_equal = _format_interval(row["interpolated"]) if row["interpolated"] else ""
    return (*_cell_labels(row), row["against"], *ratios, at_equal, " and ".join(row["between"] or []))


def _small_sample(row: Row) -> tuple[str, ...]:
    within = f"[{format_points(float(row['low']))}, {format_points(float(row['high']))}]"
    others = (f"{100 * float(row[name]):.0f} %" for name in ("other_sign", "other_call"))
    difference = format_points(float(row["difference"]))
    return (*_cell_labels(row), row["against"], str(row["n"]), difference, row["call"], within, *others)


def _proxies(row: Row) -> tuple[str, ...]:
    if "arms" not in row:
        gains = (format_points(float(row[name])) for name in ("development", "held_out"))
        return (*_cell_labels(row), "", "", "", "", "", *gains)
    shares = ("prefill_end", "mean_slots", "mean_bytes", "seconds_a_token")
    apart = (f"differ by {100 * float(row[name]):.1f} %" for name in shares)
    return (*_cell_labels(row), str(row["arms"]), *apart, "", "")


def _single_model(row: Row) -> tuple[str, ...]:
    first, second = ((row[f"{side}_model"], _format_interval(row[side])) for side in ("primary", "transfer"))
    return (row["cell"], *first, *second, row["signs"], _format_interval(row["apart"]))


def _extraction_collapse(row: Row) -> tuple[str, ...]:
    share = f"{100 * row['no_answer'] / row['wrong']:.0f} %" if row["wrong"] else ""
    wrong, cut = (str(row["wrong"]), str(row["no_answer"]), share), (str(row["cut"]), str(row["lanes"]))
    return (*_cell_labels(row), row["arm"], *wrong, *cut)


# by mode: table headings, and the function that makes the cells of a row
TABLES: dict[str, tuple[tuple[str, ...], Callable[[Row], tuple[str, ...]]]] = {
    "iso_cache": (
        (*CELL_COLUMNS, "against", "prefill end", "mean", "peak", "bytes", "at equal memory", "between"),
        _iso_cache,
    ),
    "small_sample": (
        (
            *CELL_COLUMNS,
            "against",
            "n",
            "points",
            "call",
            "n = 50: 95 % within",
            "n = 50: other sign",
            "n = 50: other verdict",
        ),
        _small_sample,
    ),
    "proxies": (
        (*CELL_COLUMNS, "arms", "prefill end", "mean slots", "bytes", "seconds per token", "development", "held out"),
        _proxies,
    ),
    "single_model": (("cell", "on", "points", "and on", "points", "signs", "apart"), _single_model),
    "extraction_collapse": (
        (*CELL_COLUMNS, "arm", "wrong", "no answer", "share of wrong", "cut at the limit", "lanes"),
        _extraction_collapse,
    ),
}


def _cell_labels(row: Mapping[str, Any]) -> tuple[str, str, str]:
    return row["model"], row["task"], row["budget"]


def _format_interval(interval: Mapping[str, Any]) -> str:
    mean, low, high = (format_points(float(interval[end])) for end in ("mean", "low", "high"))
    return f"{mean} [{low}, {high}]"


def _format_number(decimal: str | None) -> str:
    return "" if decimal is None else f"{float(decimal):,.1f}".removesuffix(".0")


def main(argv: Sequence[str] | None = None) -> int:
    path = {"folder": "folder of a confirmed registration, e.g. registrations/alpha-chain"}
    return run_command("diagnostics", __doc__, path, diagnose, argv, text=_format_report)


if __name__ == "__main__":
    sys.exit(main())
