"""The registered test: a signal and layer are chosen on one half of the development problems, and tested once
on the other.

The null hypothesis for a (model, task): over traces, the mean of the within-trace rank correlations of the
chosen signal with the labels is zero or has the other sign. It is true if the signal says nothing about what
an answer needs, whatever trend the signal has along the text. It is false if both signal and labels have a
trend: then they correlate through the position, and *beyond position* says whether more than that is shown:
within the prompt and within the written text, each by itself, where `anatomy.beyond` is "parts".
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from analysis.judgement.untrusted_files import RecordError
from analysis.stats import correlations
from protocol.formats.text_tables import to_plain
from protocol.instruments.anatomy.analysis import slip_test, trace_statistics
from protocol.instruments.anatomy.analysis.agreement import (
    POSITION,
    Agreement,
    measure_agreement,
    partial_within_parts,
    pooled_tokens,
)
from protocol.instruments.anatomy.analysis.power import needed_traces
from protocol.instruments.anatomy.analysis.traces import Anatomy, Pair, Signal, read_anatomy, read_document
from protocol.instruments.anatomy.fields import HALVES, PARTS
from protocol.instruments.anatomy.trace_file import ANATOMY, CHOOSE, CHOSEN, TEST

Floats = NDArray[np.float64]
AGREES, NOT_SHOWN, TOO_FEW = "AGREES", "NOT SHOWN", "TOO FEW TRACES"
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

    Decimals are text with six digits. Raises RecordError as `read_anatomy` does, and while traces of that half are
    missing.
    """
    return _choose_signals(folder, read_anatomy(folder))


def _choose_signals(folder: Path, anatomy: Anatomy) -> dict[str, Any]:
    _check_complete(folder, anatomy, CHOOSE)
    return {
        "registration": anatomy.registration,
        "reading": anatomy.reading,
        "half": CHOOSE,
        "pairs": [_choose_for_pair(anatomy, pair) for pair in anatomy.pairs],
    }


def _choose_for_pair(anatomy: Anatomy, pair: Pair) -> dict[str, Any]:
    agreement = measure_agreement(anatomy, pair, CHOOSE)
    enough = trace_statistics.means(agreement.unit_table(agreement.rho)).units >= trace_statistics.FEWEST
    choice = choose_best(agreement)
    return {
        "model": pair[0],
        "task": pair[1],
        "states": anatomy.states(pair, CHOOSE),
        "varying": len(agreement.problems),
        "units": agreement.unit_count,
        "candidates": int((enough & agreement.candidates).sum()) if len(agreement.signals) else 0,
        "word": TOO_FEW if choice is None else "CHOSEN",
        "chosen": None if choice is None else to_plain(choice),
    }


def choose_best(agreement: Agreement) -> Choice | None:
    """Return the candidate with the largest |mean rho|, the first of equal ones; None if none has enough units."""
    if agreement.unit_count < trace_statistics.FEWEST:
        return None
    means = trace_statistics.means(agreement.unit_table(agreement.rho))
    magnitude = np.where(agreement.candidates & (means.units >= trace_statistics.FEWEST), np.abs(means.mean), -1.0)
    index = int(np.argmax(np.round(magnitude, 9)))
    if magnitude[index] < 0:
        return None
    name, layer = agreement.signals[index]
    sign = -1 if means.mean[index] < 0 else 1
    return Choice(name, layer, sign, float(means.mean[index]), float(means.sd[index]), int(means.units[index]))


def judge(folder: Path) -> dict[str, Any]:
    """Return the content of verdict.json:

    registration, reading; beyond: "parts", where agreement beyond position is asked within parts; alpha; level:
    alpha over the registered pairs (Bonferroni), half of it where `slip` has the other half; coverage: 1 - 2 level, of
    every interval below; draws, seed: of the bootstraps.
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
             .05), testing and each_half, as in `power.needed_traces`, at this level, with the spread of the
             choosing half and its number of candidates.
        slip: only where registered, as `slip_test.test_slip`, at level: half of that of the signal, for its two
             questions; from judging 4 on all share alpha, before these had one of their own.
      rho to needed are null without a test.

    Raises RecordError as `choose` does, for an incomplete testing half, and for a chosen.json that is missing
    or differs from what the choosing half gives.
    """
    anatomy = read_anatomy(folder)
    if (recorded := read_document(folder, CHOSEN)) is None:
        raise RecordError(f"{folder}: {ANATOMY}/{CHOSEN} is missing; nothing can be tested before a signal was chosen")
    for half in HALVES:
        _check_complete(folder, anatomy, half)
    chosen = _choose_signals(folder, anatomy)
    if {name: recorded.get(name) for name in chosen} != json.loads(json.dumps(chosen)):
        raise RecordError(
            f"{folder}: {ANATOMY}/{CHOSEN}: does not follow from the choosing half; run: kv-prereg audit {folder}"
        )
    level = anatomy.level
    pairs = [
        _test_pair(anatomy, pair, choice, level, number) | _test_slip(anatomy, pair)
        for number, pair, choice in zip(count(), anatomy.pairs, chosen["pairs"], strict=False)
    ]
    verdict: dict[str, Any] = to_plain(
        {
            "registration": anatomy.registration,
            "reading": anatomy.reading,
            **({"beyond": PARTS} if anatomy.settings["beyond"] == PARTS else {}),
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
    return verdict


def _check_complete(folder: Path, anatomy: Anatomy, half: str) -> None:
    for pair in anatomy.pairs:
        if missing := anatomy.missing(pair, half):
            raise RecordError(
                f"{folder}: {', '.join(pair)}: {len(missing)} traces of the half {half!r} are not labelled "
                f"yet, the first is {missing[0]}; run: kv-prereg anatomy {folder}"
            )


TESTED = ("rho", "beyond_position", "auc", "pooled", "position", "needed")


def _test_pair(anatomy: Anatomy, pair: Pair, choosing: Mapping[str, Any], level: float, number: int) -> dict[str, Any]:
    agreement, chosen = measure_agreement(anatomy, pair, TEST), choosing["chosen"]
    result: dict[str, Any] = {
        "model": pair[0],
        "task": pair[1],
        "states": anatomy.states(pair, TEST),
        "varying": len(agreement.problems),
        "units": agreement.unit_count,
        **{name: None if chosen is None else chosen[name] for name in ("signal", "layer", "sign")},
        "chosen_mean": None if chosen is None else chosen["mean"],
        "word": TOO_FEW,
        **dict.fromkeys(TESTED),
    }
    signal: Signal | None = None if chosen is None else (chosen["signal"], chosen["layer"])
    if chosen is None or signal not in agreement.signals or agreement.unit_count < trace_statistics.FEWEST:
        return result
    index, sign = agreement.signals.index(signal), int(chosen["sign"])
    column = agreement.unit_table(agreement.rho)[:, index : index + 1]
    if trace_statistics.means(column).units[0] < trace_statistics.FEWEST:
        return result
    draws, seed = int(anatomy.settings["draws"]), int(anatomy.settings["seed"])
    generators = (np.random.default_rng([seed, number, stream]) for stream in count())
    rho = _test_mean(column, sign, level, draws, next(generators))
    result["rho"], result["word"] = rho, AGREES if rho["p"] <= level else NOT_SHOWN
    is_within_parts = anatomy.settings["beyond"] == PARTS
    partial = partial_within_parts(anatomy, pair, TEST, agreement) if is_within_parts else agreement.partial
    beyond = _test_mean(agreement.unit_table(partial)[:, index : index + 1], sign, level, draws, next(generators))
    enough = beyond["units"] >= trace_statistics.FEWEST
    word = (AGREES if beyond["p"] <= level else NOT_SHOWN) if enough else TOO_FEW
    result["beyond_position"] = {**beyond, "word": word if result["word"] == AGREES else NOT_ASKED}
    result["auc"] = float(np.nanmean(agreement.auc[:, index]))
    result["pooled"] = pooled_rho(anatomy, pair, TEST, signal, 1 - 2 * level, draws, next(generators))
    means = trace_statistics.means(agreement.unit_table(agreement.rho)).mean
    has_position = POSITION in agreement.signals
    result["position"] = float(means[agreement.signals.index(POSITION)]) if has_position else None
    result["needed"] = needed_traces(float(chosen["sd"]), level, int(choosing["candidates"]))
    return result


def _test_slip(anatomy: Anatomy, pair: Pair) -> dict[str, Any]:
    """Return the test of what is dropped of the thought, where it is registered."""
    if "slip" not in anatomy.settings:
        return {}
    level = anatomy.level / 2
    return {"slip": {"level": level, **slip_test.test_slip(anatomy, pair, level)}}


def _test_mean(column: Floats, sign: int, level: float, draws: int, rng: np.random.Generator) -> dict[str, Any]:
    """Test the mean of one column [unit, 1]."""
    summary, coverage = trace_statistics.means(column), 1 - 2 * level
    mean, n = float(summary.mean[0]), int(summary.units[0])
    return {
        "mean": mean,
        "sd": float(summary.sd[0]),
        "units": n,
        "p": float(trace_statistics.one_sided_p(summary, sign)[0]),
        "interval": _interval(trace_statistics.t_limits(summary, coverage)),
        "bootstrap": _interval(trace_statistics.bootstrap_t(column, coverage, draws, rng)),
        "fisher": correlations.fisher_interval(mean, n, coverage),
    }


def _interval(limits: Sequence[Floats]) -> tuple[float, float] | None:
    low, high = (float(end[0]) for end in limits)
    return None if math.isnan(low) or math.isnan(high) else (low, high)


def pooled_rho(
    anatomy: Anatomy,
    pair: Pair,
    half: str | None,
    signal: Signal,
    coverage: float,
    draws: int,
    rng: np.random.Generator,
) -> dict[str, Any] | None:
    """Return the pooled rho of all tokens, as EpiKV prints it; None if no trace has the signal or it is constant.

    fisher: of n = units. bootstrap: percentiles over draws of whole units, tokens ranked anew in each draw.
    """
    trace_tokens = list(pooled_tokens(anatomy, pair, half, signal))
    if not trace_tokens:
        return None
    values, label = (np.concatenate([entry[side] for entry in trace_tokens]).astype(np.float64) for side in (1, 2))
    rho = float(correlations.correlate_rows(values[None], label).rho[0]) if len(values) else math.nan
    if math.isnan(rho):
        return None
    clusters = list(dict.fromkeys(entry[0] for entry in trace_tokens))
    cluster_index = np.repeat(
        [clusters.index(entry[0]) for entry in trace_tokens], [len(entry[1]) for entry in trace_tokens]
    )
    ends: tuple[float, float] | None = None
    if len(clusters) > 1:
        resampled = np.concatenate(list(_resample_rho(values, label, cluster_index, len(clusters), draws, rng)))
        low, high = np.nanquantile(resampled, [(1 - coverage) / 2, (1 + coverage) / 2])
        ends = float(low), float(high)
    return {
        "rho": rho,
        "tokens": len(values),
        "traces": len(trace_tokens),
        "fisher": correlations.fisher_interval(rho, len(clusters), coverage),
        "bootstrap": ends,
    }


BLOCK_WEIGHTS = 1 << 22  # weights in memory at a time


def _resample_rho(
    values: Floats, label: Floats, cluster_index: NDArray[np.intp], units: int, draws: int, rng: np.random.Generator
) -> Iterator[Floats]:
    rows = max(1, BLOCK_WEIGHTS // len(values))
    for start in range(0, draws, rows):
        copies = rng.multinomial(units, np.full(units, 1 / units), size=min(rows, draws - start))
        yield correlations.weighted_rho(values, label, copies[:, cluster_index].astype(np.float64))
