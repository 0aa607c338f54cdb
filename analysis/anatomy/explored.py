"""Exploratory results from the traces of both halves; none of them decides anything.

p values are corrected for all rows of a (model, task) together, by flipping signs of whole traces, and for
the number of (model, task) pairs (Bonferroni). Intervals are uncorrected, one for each row.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.anatomy import over_traces, power, screening, token_classes
from analysis.anatomy.agreement import Agreement, agreement, by_class, given_part
from analysis.anatomy.reading import HALVES, READINGS, Anatomy, Pair, read
from analysis.output.told import plain
from analysis.stats import correlations
from analysis.stats.multiplicity import corrected

__all__ = ["corrected_p", "explored", "label_shares"]

Floats = NDArray[np.float64]
TENTHS = 10
TOGETHER = 64  # rows that are ranked at a time


def explored(folder: Path) -> dict[str, Any]:
    """Return registration, reading, alpha, level (alpha over the pairs), draws, seed, and pairs. Each pair
    has:

    model, task; states: by half; varying, units: of both halves; shares: as `label_shares`;
    rows: of each (signal, layer): units; rho, sd: over the traces' own; interval: 95 %, studentised bootstrap
        over units; fisher: 95 %, of n = units as EpiKV counts; p: two-sided, corrected, null for fewer than 8
        units and for the position, which is no candidate; survives: p at most alpha; partial, partial_p,
        partial_survives: the same given position; part, part_p, part_survives: the same given position within
        the prompt and within the written text, each by itself; auc: mean over traces; pooled: rho of all
        tokens together;
        other: rho in the other reading; classes: rho and traces within each token class;
    needed: as in verdict.json, with the median spread of all rows; screening: results of the functions in
        `screening` (problems, policies, held_out), and without: traces in which no token is needed.

    Raises RecordError as `read_anatomy` does. An incomplete anatomy is reported as far as it goes.
    """
    folder = Path(folder)
    anatomy = read(folder)
    level = corrected(float(anatomy.settings["alpha"]), len(anatomy.pairs))
    pairs = [_of_pair(folder, anatomy, pair, level, at) for at, pair in enumerate(anatomy.pairs)]
    found: dict[str, Any] = plain(
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
    return found


def _of_pair(folder: Path, anatomy: Anatomy, pair: Pair, level: float, number: int) -> dict[str, Any]:
    draws = int(anatomy.settings["draws"])

    def rng(place: int) -> np.random.Generator:
        return np.random.default_rng([int(anatomy.settings["seed"]), number, 100 + place])

    found = agreement(anatomy, pair, None)
    rows = _rows(anatomy, pair, found, draws, rng(0), number) if found.signals else []
    known = [row["sd"] for row in rows if not math.isnan(row["sd"])]
    answers = screening.answers(anatomy, pair)
    policies = screening.over_policies(answers, draws, rng(1))
    return {
        "model": pair[0],
        "task": pair[1],
        "states": {half: anatomy.states(pair, half) for half in HALVES},
        "varying": len(found.problems),
        "units": found.number,
        "shares": label_shares(anatomy, pair),
        "rows": rows,
        "needed": power.needed(float(np.median(known)), level, max(1, len(rows))) if known else None,
        "screening": {
            "problems": screening.over_problems(answers, draws, rng(2)),
            "policies": policies,
            "held_out": screening.held_out(folder, pair, policies),
            "without": answers.without,
        },
    }


def corrected_p(anatomy: Anatomy, found: Agreement, table: Floats, stream: tuple[int, str]) -> Floats:
    """Return [signal]: two-sided p of table[unit, signal], corrected for all rows and for all (model, task)
    pairs.

    NaN for the position, which is no candidate. stream: the number of the pair and the name of the table
    ("rho", "partial", "part", or "other": rho in the other reading); each name has its own draws, so that
    every caller gets the same values.
    """
    p = np.full(len(found.signals), np.nan)
    number, name = stream
    streams = ("rho", "partial", "other", "part")
    rng = np.random.default_rng([int(anatomy.settings["seed"]), number, 200 + streams.index(name)])
    own, draws = table[:, found.candidates], int(anatomy.settings["draws"])
    p[found.candidates] = np.minimum(1, over_traces.family_p(own, draws, rng) * len(anatomy.pairs))
    return p


def _rows(
    anatomy: Anatomy, pair: Pair, found: Agreement, draws: int, rng: np.random.Generator, number: int
) -> list[dict[str, Any]]:
    tables = {name: found.units(getattr(found, name)) for name in ("rho", "partial", "auc")}
    tables["part"] = found.units(given_part(anatomy, pair, found))
    of = {name: over_traces.means(table) for name, table in tables.items()}
    low, high = over_traces.bootstrap_t(tables["rho"], 0.95, draws, rng)
    p = {
        name: corrected_p(anatomy, found, tables[name], (number, name)) for name in ("rho", "partial", "part")
    }
    alpha, pool = float(anatomy.settings["alpha"]), _pooled(anatomy, pair, found)
    other = next(one for one in READINGS if one != anatomy.reading)
    second = agreement(anatomy, pair, None, other)
    elsewhere = dict(zip(second.signals, over_traces.means(second.units(second.rho)).mean, strict=True))
    classes = {
        name: (each.signals, over_traces.means(each.units(each.rho)))
        for name, each in by_class(anatomy, pair).items()
    }
    rows = []
    for at, signal in enumerate(found.signals):
        mean, units = float(of["rho"].mean[at]), int(of["rho"].units[at])
        bounds = None if math.isnan(low[at]) else (float(low[at]), float(high[at]))
        rows.append(
            {
                "signal": signal[0],
                "layer": signal[1],
                "units": units,
                "rho": mean,
                "sd": float(of["rho"].sd[at]),
                "interval": bounds,
                "fisher": correlations.fisher(mean, units),
                "p": float(p["rho"][at]),
                "survives": bool(p["rho"][at] <= alpha),
                "partial": float(of["partial"].mean[at]),
                "partial_p": float(p["partial"][at]),
                "partial_survives": bool(p["partial"][at] <= alpha),
                "part": float(of["part"].mean[at]),
                "part_p": float(p["part"][at]),
                "part_survives": bool(p["part"][at] <= alpha),
                "auc": float(of["auc"].mean[at]),
                "pooled": float(pool[at]),
                "other": float(elsewhere.get(signal, math.nan)),
                "classes": {
                    name: {
                        "rho": float(each.mean[where.index(signal)]),
                        "units": int(each.units[where.index(signal)]),
                    }
                    for name, (where, each) in classes.items()
                },
            }
        )
    return rows


def _pooled(anatomy: Anatomy, pair: Pair, found: Agreement) -> Floats:
    """Return [signal]: Spearman's rho of the tokens of all labelled or unmoved traces together."""
    traces = [one for one in anatomy.of(pair) if one.windows]
    label = np.concatenate([one.labels(anatomy.reading) for one in traces])
    ends = np.cumsum([0, *(one.span[1] - one.span[0] for one in traces)])
    table = np.full((len(found.signals), ends[-1]), np.nan, dtype=np.float32)
    for one, first, last in zip(traces, ends[:-1], ends[1:], strict=True):
        columns = [found.signals.index(signal) for signal in one.signals if signal in found.signals]
        rows = [at for at, signal in enumerate(one.signals) if signal in found.signals]
        table[columns, first:last] = one.values().signals[rows, one.span[0] : one.span[1]]
    blocks = range(0, len(table), TOGETHER)
    return np.concatenate([correlations.rows(table[at : at + TOGETHER], label).rho for at in blocks])


def label_shares(anatomy: Anatomy, pair: Pair, reading: str | None = None) -> dict[str, Any]:
    """Return the share of needed tokens in labelled and unmoved traces, mean over traces.

    all: over the span; tenths: by tenth of the span; classes: by token class, with the traces that have the
    class; traces: their number.
    """
    reading = reading or anatomy.reading
    traces = [one for one in anatomy.of(pair) if one.windows]
    tenths: list[list[float]] = [[] for _ in range(TENTHS)]
    classes: dict[str, list[float]] = {name: [] for name in token_classes.CLASSES}
    for one in traces:
        label, pieces = one.labels(reading), one.pieces[one.span[0] : one.span[1]]
        at = np.arange(len(label)) * TENTHS // len(label)
        for tenth in set(at.tolist()):
            tenths[tenth].append(float(label[at == tenth].mean()))
        names = np.array([token_classes.class_of(piece) for piece in pieces])
        for name in set(names.tolist()):
            classes[name].append(float(label[names == name].mean()))
    return {
        "traces": len(traces),
        "all": _mean([float(one.labels(reading).mean()) for one in traces]),
        "tenths": [_mean(each) for each in tenths],
        "classes": {name: {"share": _mean(each), "traces": len(each)} for name, each in classes.items()},
    }


def _mean(values: list[float]) -> float:
    return float(np.mean(values)) if values else math.nan
