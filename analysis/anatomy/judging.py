"""The registered test: a signal and layer are chosen on one half of the development problems, and tested once
on the other.

The null hypothesis for a (model, task): over traces, the mean of the within-trace rank correlations of the
chosen signal with the labels is zero or has the other sign. It is true if the signal says nothing about what
an answer needs, whatever trend the signal has along the text. It is false if both signal and labels have a
trend: then they correlate through the position, and *beyond position* says whether more than that is shown.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from analysis.anatomy import over_traces
from analysis.anatomy.agreement import POSITION, Agreement, agreement, pooled
from analysis.anatomy.power import needed
from analysis.anatomy.reading import CHOOSE, FOLDER, HALVES, TEST, Anatomy, Pair, Signal, read
from analysis.output.told import plain
from analysis.stats import correlations
from analysis.stats.multiplicity import corrected
from analysis.studies import plain_files
from analysis.studies.plain_files import RecordError

__all__ = ["AGREES", "CHOSEN", "FEW", "NOT_ASKED", "NOT_SHOWN", "VERDICT", "choose", "judge", "pooled_rho"]

Floats = NDArray[np.float64]
CHOSEN, VERDICT = "chosen.json", "verdict.json"
AGREES, NOT_SHOWN, FEW = "AGREES", "NOT SHOWN", "TOO FEW TRACES"
NOT_ASKED = "NOT ASKED"  # beyond position, if the first test does not AGREE


class Choice(NamedTuple):
    """The chosen signal and layer. sign: 1 or -1, of the mean rho on the choosing half."""

    signal: str
    layer: int | None
    sign: int
    mean: float
    sd: float
    units: int


def choose(folder: Path) -> dict[str, Any]:
    """Return the content of chosen.json:

    registration: digest of the lock. reading: the registered one. half: "choose".
    pairs: one of each registered (model, task), in order:
        model, task; states: how many traces of this half ended in each state; varying: traces that have
        tokens of both labels; units: these, or the clusters of these; candidates: (signal, layer) defined in
        at least 8 units; word: "CHOSEN" or "TOO FEW TRACES" (fewer than 8 units, or no candidate);
        chosen: null, or signal, layer (null where a row has none), sign (1, -1), mean and sd of rho over
        units, units. It is the candidate with the largest |mean rho|, the first of equal ones.

    Raises RecordError as `read_anatomy` does, and while traces of the choosing half are missing.
    """
    anatomy = read(folder)
    return _chosen(folder, anatomy)


def _chosen(folder: Path, anatomy: Anatomy) -> dict[str, Any]:
    _complete(folder, anatomy, CHOOSE)
    return {
        "registration": anatomy.registration,
        "reading": anatomy.reading,
        "half": CHOOSE,
        "pairs": [_of_pair(anatomy, pair) for pair in anatomy.pairs],
    }


def _of_pair(anatomy: Anatomy, pair: Pair) -> dict[str, Any]:
    found = agreement(anatomy, pair, CHOOSE)
    enough = over_traces.means(found.units(found.rho)).units >= over_traces.FEWEST
    choice = best(found)
    return {
        "model": pair[0],
        "task": pair[1],
        "states": anatomy.states(pair, CHOOSE),
        "varying": len(found.problems),
        "units": found.number,
        "candidates": int((enough & found.candidates).sum()) if len(found.signals) else 0,
        "word": FEW if choice is None else "CHOSEN",
        "chosen": None if choice is None else plain(choice),
    }


def best(found: Agreement) -> Choice | None:
    """Return the candidate with the largest |mean rho|, the first of equal ones; None if none has enough
    units.
    """
    if found.number < over_traces.FEWEST:
        return None
    of = over_traces.means(found.units(found.rho))
    size = np.where(found.candidates & (of.units >= over_traces.FEWEST), np.abs(of.mean), -1.0)
    at = int(np.argmax(np.round(size, 9)))
    if size[at] < 0:
        return None
    name, layer = found.signals[at]
    sign = -1 if of.mean[at] < 0 else 1
    return Choice(name, layer, sign, float(of.mean[at]), float(of.sd[at]), int(of.units[at]))


def judge(folder: Path) -> dict[str, Any]:
    """Return the content of verdict.json:

    registration, reading; alpha; level: alpha over the registered pairs (Bonferroni); coverage: 1 - 2 level,
    of every interval below; draws, seed: of the bootstraps.
    states: of all traces of both halves, how many ended in each state.
    pairs: one of each registered (model, task), in order:
        model, task; states, varying, units: as in chosen.json, of the testing half;
        signal, layer, sign, chosen_mean: as chosen, null if nothing was;
        word: AGREES if the one-sided p is at most the level, NOT SHOWN, or TOO FEW TRACES (in either
        half); rho: mean, sd, units, p (one-sided, Student), interval (Student), bootstrap (studentised, whole
             units), fisher (of n = units, as EpiKV counts); beyond_position: the same of the partial
             correlation, with its own word: tested at the same level after AGREES alone, else NOT ASKED;
        auc: mean over traces; pooled: rho of the tokens of all labelled or unmoved traces together, tokens,
             traces, fisher, bootstrap (percentiles, whole units, ranked anew in each draw);
        position: mean rho of the position itself;
        needed: for a mean rho of 0.1, 0.2 and 0.3 and power 0.8: fisher (traces as EpiKV counts, two-sided
             .05), testing and each_half, as in `power.TracesNeeded`, at this level, with the spread of the
             choosing half and its number of candidates.
      rho to needed are null without a test.

    Raises RecordError as `choose` does, for an incomplete testing half, and for a chosen.json that is missing
    or differs from what the choosing half gives.
    """
    anatomy = read(folder)
    held = _held(folder)
    for half in HALVES:
        _complete(folder, anatomy, half)
    chosen = _chosen(folder, anatomy)
    if {name: held.get(name) for name in chosen} != json.loads(json.dumps(chosen)):
        raise RecordError(
            f"{folder}: {FOLDER}/{CHOSEN}: is not what the choosing half gives; run: kv-prereg audit {folder}"
        )
    level = corrected(float(anatomy.settings["alpha"]), len(anatomy.pairs))
    pairs = [
        _tested(anatomy, pair, one, level, number)
        for number, pair, one in zip(count(), anatomy.pairs, chosen["pairs"], strict=False)
    ]
    found: dict[str, Any] = plain(
        {
            "registration": anatomy.registration,
            "reading": anatomy.reading,
            "alpha": float(anatomy.settings["alpha"]),
            "level": level,
            "coverage": 1 - 2 * level,
            "draws": int(anatomy.settings["draws"]),
            "seed": int(anatomy.settings["seed"]),
            "states": {
                state: sum(anatomy.states(pair)[state] for pair in anatomy.pairs)
                for state in anatomy.states(anatomy.pairs[0])
            },
            "pairs": pairs,
        }
    )
    return found


def _held(folder: Path) -> dict[str, Any]:
    try:
        return plain_files.parsed(plain_files.read(Path(folder) / FOLDER / CHOSEN), f"{FOLDER}/{CHOSEN}")
    except FileNotFoundError:
        raise RecordError(
            f"{folder}: {FOLDER}/{CHOSEN} is missing; nothing is tested before it was chosen"
        ) from None


def _complete(folder: Path, anatomy: Anatomy, half: str) -> None:
    for pair in anatomy.pairs:
        if missing := anatomy.missing(pair, half):
            raise RecordError(
                f"{folder}: {', '.join(pair)}: {len(missing)} traces of the half {half!r} are not labelled "
                f"yet, {missing[0]} first; run: kv-prereg anatomy {folder}"
            )


TESTED = ("rho", "beyond_position", "auc", "pooled", "position", "needed")


def _tested(
    anatomy: Anatomy, pair: Pair, choosing: Mapping[str, Any], level: float, number: int
) -> dict[str, Any]:
    found, chosen, rows = agreement(anatomy, pair, TEST), choosing["chosen"], int(choosing["candidates"])
    row: dict[str, Any] = {
        "model": pair[0],
        "task": pair[1],
        "states": anatomy.states(pair, TEST),
        "varying": len(found.problems),
        "units": found.number,
        **{name: None if chosen is None else chosen[name] for name in ("signal", "layer", "sign")},
        "chosen_mean": None if chosen is None else chosen["mean"],
        "word": FEW,
        **dict.fromkeys(TESTED),
    }
    signal: Signal | None = None if chosen is None else (chosen["signal"], chosen["layer"])
    if chosen is None or signal not in found.signals or found.number < over_traces.FEWEST:
        return row
    at, sign = found.signals.index(signal), int(chosen["sign"])
    column = found.units(found.rho)[:, at : at + 1]
    if over_traces.means(column).units[0] < over_traces.FEWEST:
        return row
    draws, seed = int(anatomy.settings["draws"]), int(anatomy.settings["seed"])
    generators = (np.random.default_rng([seed, number, place]) for place in count())
    rho = _mean(column, sign, level, draws, next(generators))
    row["rho"], row["word"] = rho, AGREES if rho["p"] <= level else NOT_SHOWN
    beyond = _mean(found.units(found.partial)[:, at : at + 1], sign, level, draws, next(generators))
    enough = beyond["units"] >= over_traces.FEWEST
    word = (AGREES if beyond["p"] <= level else NOT_SHOWN) if enough else FEW
    row["beyond_position"] = {**beyond, "word": word if row["word"] == AGREES else NOT_ASKED}
    row["auc"] = float(np.nanmean(found.auc[:, at]))
    row["pooled"] = pooled_rho(anatomy, pair, TEST, signal, 1 - 2 * level, draws, next(generators))
    row["position"] = _position(found)
    row["needed"] = needed(float(chosen["sd"]), level, rows)
    return row


def _mean(column: Floats, sign: int, level: float, draws: int, rng: np.random.Generator) -> dict[str, Any]:
    """Test the mean of one column [unit, 1]."""
    of, coverage = over_traces.means(column), 1 - 2 * level
    mean, n = float(of.mean[0]), int(of.units[0])
    return {
        "mean": mean,
        "sd": float(of.sd[0]),
        "units": n,
        "p": float(over_traces.one_sided(of, sign)[0]),
        "interval": _ends(over_traces.limits(of, coverage)),
        "bootstrap": _ends(over_traces.bootstrap_t(column, coverage, draws, rng)),
        "fisher": correlations.fisher(mean, n, coverage),
    }


def _ends(limits: Sequence[Floats]) -> tuple[float, float] | None:
    low, high = (float(end[0]) for end in limits)
    return None if math.isnan(low) or math.isnan(high) else (low, high)


def _position(found: Agreement) -> float | None:
    if POSITION not in found.signals:
        return None
    return float(over_traces.means(found.units(found.rho)).mean[found.signals.index(POSITION)])


def pooled_rho(
    anatomy: Anatomy,
    pair: Pair,
    half: str | None,
    signal: Signal,
    coverage: float,
    draws: int,
    rng: np.random.Generator,
) -> dict[str, Any] | None:
    """Return the pooled rho of all tokens, as EpiKV prints it; None if no trace has the signal or it is
    constant.

    fisher: of n = units. bootstrap: percentiles over draws of whole units, tokens ranked anew in each draw.
    """
    held = list(pooled(anatomy, pair, half, signal))
    if not held:
        return None
    values, label = (np.concatenate([one[side] for one in held]).astype(np.float64) for side in (1, 2))
    rho = float(correlations.rows(values[None], label).rho[0]) if len(values) else math.nan
    if math.isnan(rho):
        return None
    clusters = list(dict.fromkeys(one[0] for one in held))
    of = np.repeat([clusters.index(one[0]) for one in held], [len(one[1]) for one in held])
    ends: tuple[float, float] | None = None
    if len(clusters) > 1:
        drawn = np.concatenate(list(_resampled(values, label, of, len(clusters), draws, rng)))
        low, high = np.nanquantile(drawn, [(1 - coverage) / 2, (1 + coverage) / 2])
        ends = float(low), float(high)
    return {
        "rho": rho,
        "tokens": len(values),
        "traces": len(held),
        "fisher": correlations.fisher(rho, len(clusters), coverage),
        "bootstrap": ends,
    }


BLOCK = 1 << 22  # weights in memory at a time


def _resampled(
    values: Floats, label: Floats, of: NDArray[np.intp], units: int, draws: int, rng: np.random.Generator
) -> Iterator[Floats]:
    rows = max(1, BLOCK // len(values))
    for start in range(0, draws, rows):
        copies = rng.multinomial(units, np.full(units, 1 / units), size=min(rows, draws - start))
        yield correlations.weighted_rho(values, label, copies[:, of].astype(np.float64))
