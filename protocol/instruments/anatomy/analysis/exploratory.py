"""Exploratory results from the traces of both halves; none of them decides anything.

p values are corrected for all rows of a (model, task) together, by flipping signs of whole traces, and for
the number of (model, task) pairs (Bonferroni). Intervals are uncorrected, one for each row.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.stats import correlations
from protocol.formats.text_tables import to_plain
from protocol.instruments.anatomy.analysis import (
    data_flow,
    power,
    screening,
    slip_test,
    token_classes,
    trace_statistics,
)
from protocol.instruments.anatomy.analysis.agreement import (
    Agreement,
    agreement_by_class,
    measure_agreement,
    partial_within_parts,
)
from protocol.instruments.anatomy.analysis.traces import Anatomy, Pair, Trace, read_anatomy
from protocol.instruments.anatomy.fields import HALVES, READINGS

Floats = NDArray[np.float64]
TENTHS = 10
ROWS_AT_ONCE = 64  # rows that are ranked at a time


def explore_anatomy(folder: Path) -> dict[str, Any]:
    """Return registration, reading, alpha, level (alpha over the pairs), draws, seed, and pairs. Each pair has:

    model, task; states: by half; varying, units: of both halves; shares: as `label_shares`;
    rows: of each (signal, layer): units; rho, sd: over the traces' own; interval: 95 %, studentised bootstrap
        over units; fisher: 95 %, of n = units as EpiKV counts; p: two-sided, corrected, null for fewer than 8
        units and for the position, which is no candidate; survives: p at most alpha; partial, partial_p,
        partial_survives: the same given position; part, part_p, part_survives: the same given position within
        the prompt and within the written text, each by itself; auc: mean over traces; pooled: rho of all
        tokens together;
        other: rho in the other reading; classes: rho and traces within each token class;
    data_flow: as `data_flow.compare_exact`; slip: as `slip_test.compare_slip`; needed: as in verdict.json, with the
        median spread of all rows;
    screening: results of the functions in `screening` (problems, policies, held_out), and without: traces in which no
        token is needed.

    Raises RecordError as `read_anatomy` does. An incomplete anatomy is reported as far as it goes.
    """
    folder = Path(folder)
    anatomy = read_anatomy(folder)
    level = anatomy.level
    pairs = [_explore_pair(folder, anatomy, pair, level, index) for index, pair in enumerate(anatomy.pairs)]
    report: dict[str, Any] = to_plain(
        {
            "registration": anatomy.registration,
            "reading": anatomy.reading,
            "alpha": float(anatomy.settings["alpha"]),
            "level": level,
            "draws": int(anatomy.settings["draws"]),
            "seed": int(anatomy.settings["seed"]),
            "pairs": pairs,
        }
    )
    return report


def _explore_pair(folder: Path, anatomy: Anatomy, pair: Pair, level: float, number: int) -> dict[str, Any]:
    draws = int(anatomy.settings["draws"])

    def rng(stream: int) -> np.random.Generator:
        return np.random.default_rng([int(anatomy.settings["seed"]), number, 100 + stream])

    agreement = measure_agreement(anatomy, pair, None)
    rows = _signal_rows(anatomy, pair, agreement, draws, rng(0), number) if agreement.signals else []
    known = [row["sd"] for row in rows if not math.isnan(row["sd"])]
    answers = screening.collect_answers(anatomy, pair)
    policies = screening.correlate_over_policies(answers, draws, rng(1))
    return {
        "model": pair[0],
        "task": pair[1],
        "states": {half: anatomy.states(pair, half) for half in HALVES},
        "varying": len(agreement.problems),
        "units": agreement.unit_count,
        "shares": label_shares(anatomy, pair),
        "rows": rows,
        "data_flow": data_flow.compare_exact(anatomy, pair),
        "slip": slip_test.compare_slip(anatomy, pair),
        "needed": power.needed_traces(float(np.median(known)), level, max(1, len(rows))) if known else None,
        "screening": {
            "problems": screening.fit_over_problems(answers, draws, rng(2)),
            "policies": policies,
            "held_out": screening.correlate_held_out(folder, pair, policies),
            "without": answers.without,
        },
    }


def corrected_p(anatomy: Anatomy, agreement: Agreement, table: Floats, stream: tuple[int, str]) -> Floats:
    """Return [signal]: two-sided p of table[unit, signal], corrected for all rows and for all (model, task) pairs.

    NaN for the position, which is no candidate. stream: the number of the pair and the name of the table
    ("rho", "partial", "part", or "other": rho in the other reading); each name has its own draws, so that
    every caller gets the same values.
    """
    p = np.full(len(agreement.signals), np.nan)
    number, name = stream
    streams = ("rho", "partial", "other", "part")
    rng = np.random.default_rng([int(anatomy.settings["seed"]), number, 200 + streams.index(name)])
    values, draws = table[:, agreement.candidates], int(anatomy.settings["draws"])
    p[agreement.candidates] = np.minimum(1, trace_statistics.family_p(values, draws, rng) * len(anatomy.pairs))
    return p


def _signal_rows(
    anatomy: Anatomy, pair: Pair, agreement: Agreement, draws: int, rng: np.random.Generator, number: int
) -> list[dict[str, Any]]:
    tables = {name: agreement.unit_table(getattr(agreement, name)) for name in ("rho", "partial", "auc")}
    tables["part"] = agreement.unit_table(partial_within_parts(anatomy, pair, None, agreement))
    means = {name: trace_statistics.means(table) for name, table in tables.items()}
    low, high = trace_statistics.bootstrap_t(tables["rho"], 0.95, draws, rng)
    p = {name: corrected_p(anatomy, agreement, tables[name], (number, name)) for name in ("rho", "partial", "part")}
    alpha, pooled = float(anatomy.settings["alpha"]), _pooled_rho(anatomy, pair, agreement)
    other = next(reading for reading in READINGS if reading != anatomy.reading)
    other_agreement = measure_agreement(anatomy, pair, None, other)
    means_of_other = trace_statistics.means(other_agreement.unit_table(other_agreement.rho)).mean
    other_means = dict(zip(other_agreement.signals, means_of_other, strict=True))
    classes = {
        name: (part.signals, trace_statistics.means(part.unit_table(part.rho)))
        for name, part in agreement_by_class(anatomy, pair).items()
    }
    rows = []
    for index, signal in enumerate(agreement.signals):
        mean, units = float(means["rho"].mean[index]), int(means["rho"].units[index])
        bounds = None if math.isnan(low[index]) else (float(low[index]), float(high[index]))
        rows.append(
            {
                "signal": signal[0],
                "layer": signal[1],
                "units": units,
                "rho": mean,
                "sd": float(means["rho"].sd[index]),
                "interval": bounds,
                "fisher": correlations.fisher_interval(mean, units),
                "p": float(p["rho"][index]),
                "survives": bool(p["rho"][index] <= alpha),
                "partial": float(means["partial"].mean[index]),
                "partial_p": float(p["partial"][index]),
                "partial_survives": bool(p["partial"][index] <= alpha),
                "part": float(means["part"].mean[index]),
                "part_p": float(p["part"][index]),
                "part_survives": bool(p["part"][index] <= alpha),
                "auc": float(means["auc"].mean[index]),
                "pooled": float(pooled[index]),
                "other": float(other_means.get(signal, math.nan)),
                "classes": {
                    name: {
                        "rho": float(part.mean[class_signals.index(signal)]),
                        "units": int(part.units[class_signals.index(signal)]),
                    }
                    for name, (class_signals, part) in classes.items()
                },
            }
        )
    return rows


def _pooled_rho(anatomy: Anatomy, pair: Pair, agreement: Agreement) -> Floats:
    """Return [signal]: Spearman's rho of the tokens of all labelled or unmoved traces together."""
    traces = [trace for trace in anatomy.traces_of(pair) if trace.windows]
    label = np.concatenate([trace.labels(anatomy.reading) for trace in traces])
    ends = np.cumsum([0, *(trace.span[1] - trace.span[0] for trace in traces)])
    table = np.full((len(agreement.signals), ends[-1]), np.nan, dtype=np.float32)
    for trace, first, last in zip(traces, ends[:-1], ends[1:], strict=True):
        columns = [agreement.signals.index(signal) for signal in trace.signals if signal in agreement.signals]
        rows = [index for index, signal in enumerate(trace.signals) if signal in agreement.signals]
        table[columns, first:last] = trace.values().signals[rows, trace.span[0] : trace.span[1]]
    blocks = range(0, len(table), ROWS_AT_ONCE)
    return np.concatenate(
        [correlations.correlate_rows(table[index : index + ROWS_AT_ONCE], label).rho for index in blocks]
    )


def label_shares(anatomy: Anatomy, pair: Pair) -> dict[str, Any]:
    """Return the share of needed tokens in labelled and unmoved traces, mean over traces.

    all: over the span; tenths: by tenth of the span; classes: by token class, with the traces that have the
    class; traces: their number.
    """
    traces = [trace for trace in anatomy.traces_of(pair) if trace.windows]
    tenths = needed_shares(traces, anatomy.reading, tenths_of_span, range(TENTHS))
    classes = needed_shares(traces, anatomy.reading, token_classes.classes_in_span, token_classes.CLASSES)
    return {
        "traces": len(traces),
        "all": _mean(np.array([trace.labels(anatomy.reading).mean() for trace in traces])),
        "tenths": [_mean(shares) for shares in tenths.T],
        "classes": {
            name: {"share": _mean(shares), "traces": int(np.isfinite(shares).sum())}
            for name, shares in zip(token_classes.CLASSES, classes.T, strict=True)
        },
    }


def tenths_of_span(trace: Trace) -> list[int]:
    """Return the tenth of the span, from 0, that each of its tokens lies in."""
    tokens = trace.span[1] - trace.span[0]
    return [TENTHS * index // tokens for index in range(tokens)]


def needed_shares(
    traces: Sequence[Trace], reading: str, kinds_of: Callable[[Trace], Sequence[Any]], kinds: Sequence[Any]
) -> Floats:
    """Return [trace, kind]: the share of its tokens of this kind that are needed, NaN without any. kinds_of: by token
    of the span.
    """
    table = np.full((len(traces), len(kinds)), np.nan)
    for row, trace in zip(table, traces, strict=True):
        label, of_token = trace.labels(reading), np.array(kinds_of(trace))
        for column, kind in enumerate(kinds):
            if (matches := of_token == kind).any():
                row[column] = label[matches].mean()
    return table


def _mean(shares: Floats) -> float:
    finite = shares[np.isfinite(shares)]
    return float(finite.mean()) if len(finite) else math.nan
