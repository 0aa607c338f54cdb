"""Diagnostics of a finished study for five failure modes of evaluations of eviction.

They are from section 3.2 of "Minimal-Intervention KV Retention via Set-Conditioned Diversity". Each function
returns "seen", "not seen" or "cannot tell" with its numbers, and decides nothing. The paper's family-level
bundling is not included: a single study cannot show whether a mechanism or its whole family failed.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis import rules
from analysis.rules.rule import Contrast
from analysis.stats import isocache, power
from analysis.stats.comparison import Comparison
from analysis.stats.methods import draws
from analysis.stats.resampled_units import Clusters, number
from analysis.studies import contrasts, memory, transfer
from analysis.studies.contrasts import Pairing, by_problem

__all__ = [
    "CANNOT_TELL",
    "NOT_SEEN",
    "SEEN",
    "Diagnosis",
    "extraction_collapse",
    "iso_cache",
    "proxies",
    "single_model",
    "small_sample",
]

SEEN, NOT_SEEN, CANNOT_TELL = "seen", "not seen", "cannot tell"
SMALL = 50  # problems
SUBSAMPLES = 2_000
OFTEN = 0.05  # share of subsamples that disagree, from which on a mode is detected
COLLAPSE = 0.44  # share of wrong outputs without an answer: the paper's minimum at 64 slots
FEW = 20  # wrong answers; no share is computed for fewer
PLACE = ["model", "task", "budget"]


class Diagnosis(NamedTuple):
    verdict: str
    says: str  # one or two sentences
    rows: list[Any]  # the numbers behind it


class Ratios(NamedTuple):
    """Ratios of subject to comparator, of means over problems."""

    prefill_end: float  # slots at the end of the prefill
    mean: float  # slots over the whole generation
    peak: float  # slots
    mean_bytes: float


class Memory(NamedTuple):
    """The memory of a contrast, and its difference interpolated to equal memory."""

    model: str
    task: str
    budget: str
    against: str
    ratios: Ratios | None  # None for fewer than two measured problems
    interpolated: Comparison | None  # 95 %; None if no two budgets of the comparator bracket the subject
    between: list[str] | None


class Small(NamedTuple):
    """Results of a contrast on random subsamples of 50 of its problems."""

    model: str
    task: str
    budget: str
    against: str
    n: int
    difference: float
    call: str  # "better", "worse" or "neither" at the corrected level, of all n
    low: float  # 95 % of the subsample differences are between these
    high: float
    other_sign: float  # share of subsamples with the opposite sign
    other_call: float  # share of subsamples with another call


class Apart(NamedTuple):
    """Relative spread of a proxy over the evicting arms of a cell: largest over smallest, minus 1."""

    model: str
    task: str
    budget: str
    arms: int
    prefill_end: float
    mean_slots: float
    mean_bytes: float
    seconds_a_token: float


class Development(NamedTuple):
    """Subject minus baseline of a sweep, on development and held-out problems."""

    model: str
    task: str
    budget: str
    development: float
    held_out: float


class Ended(NamedTuple):
    """Counts of how the answers of an arm ended."""

    model: str
    task: str
    budget: str
    arm: str
    wrong: int
    no_answer: int  # among the wrong
    cut: int  # among all, by the token limit
    lanes: int


def iso_cache(
    pairs: Sequence[Pairing],
    arms: Mapping[tuple[str, ...], pd.DataFrame],
    *,
    tolerance: float,
    budgets: Sequence[str],
    times: int,
    seed: int,
    lock: Mapping[str, Any],
) -> Diagnosis:
    """Detect contrasts whose memory matches at the end of the prefill but not in the mean over generation.

    Memory is in slots, or in bytes if the lock has bytes per slot. arms: lanes by (model, task, budget, arm),
    with `prefill_end`, `peak_bytes` and the columns of `Study.lanes`.
    """
    if not pairs:
        return Diagnosis(CANNOT_TELL, "The comparator is the full cache: memory is unequal on purpose.", [])
    rows, counts = [], lock["protocol"]["content"]["decision"].get("memory", "slots")
    for index, pair in enumerate(pairs):
        problems = sorted({*arms[pair[:4]]["problem"]})
        sizes = memory.slot_bytes(lock, pair) or (1, 1)
        ratios, found, between = _ratios(pair, arms, problems, sizes[0] / sizes[1]), None, None
        (own, *references), whole = contrasts.references(pair, arms, budgets, problems, counts)
        of = None if pair.clusters is None else dict(zip(pair.problems, pair.clusters, strict=True))
        clusters = None if of is None else [of[problem] for problem in whole]
        several = number(clusters, len(whole)) > 1
        at = isocache.interpolated(own.correct, own.slots, references) if several else None
        if ratios is not None and at is not None:
            rng = np.random.default_rng([seed, index])
            found = isocache.resampled(
                own.correct, own.slots, references, at, reps=times, rng=rng, clusters=clusters
            )
            between = [budgets[at.below], budgets[at.above]]
        rows.append(Memory(*pair[:3], pair.against, ratios, found, between))
    held = [(row, row.ratios) for row in rows if row.ratios is not None]
    if not held:
        return Diagnosis(CANNOT_TELL, "No contrast has two problems that were measured.", rows)
    hidden = [
        (row, ratios)
        for row, ratios in held
        if _within(ratios.prefill_end, tolerance) and not _within(ratios.mean, tolerance)
    ]
    if hidden:
        worst, ratios = max(hidden, key=lambda each: abs(math.log(each[1].mean)))
        says = (
            f"{len(hidden)} of {len(rows)} contrasts match at the end of the prefill and not in the mean "
            f"over the generation; against {worst.against} at {worst.budget} the ratio goes from "
            f"{ratios.prefill_end:.3f} to {ratios.mean:.3f}."
        )
        return Diagnosis(SEEN, says, rows)
    matched = sum(_within(ratios.mean, tolerance) for _, ratios in held)
    means, ends = zip(*((ratios.mean, ratios.prefill_end) for _, ratios in held), strict=True)
    says = (
        f"{matched} of {len(rows)} contrasts match in the mean over the generation: subject over comparator "
        f"{min(means):.4f} to {max(means):.4f}, at the end of the prefill {min(ends):.4f} to {max(ends):.4f}."
    )
    return Diagnosis(NOT_SEEN, says, rows)


def _ratios(
    pair: Pairing, arms: Mapping[tuple[str, ...], pd.DataFrame], problems: list[str], slot: float
) -> Ratios | None:
    """Return the memory ratios of a contrast. slot: bytes per slot of the subject over the comparator's."""
    columns = ("prefill_end", "mean_slots", "peak_slots", "mean_bytes")
    own, other = (
        np.array([by_problem(arms[*pair[:3], arm], column, problems) for column in columns])
        for arm in (pair.subject, pair.against)
    )
    whole = ~np.isnan([own, other]).any(axis=(0, 1, 3))
    if whole.sum() < 2:
        return None
    each = zip(own[:, whole], other[:, whole], (slot, slot, slot, 1.0), strict=True)
    return Ratios(*(factor * float(one.mean() / two.mean()) for one, two, factor in each))


def small_sample(
    pairs: Sequence[Pairing], decision: Mapping[str, Any], judged: Sequence[Mapping[str, Any]]
) -> Diagnosis:
    """Detect how often 50 problems per task would give another sign, call or verdict.

    Applies the registered method and rule to 2,000 random subsamples of 50 problems per task, without
    replacement; the contrasts of a task share a subsample. judged: the contrasts judged on all problems, in
    the order of `pairs`; memory is assumed to match as on all problems. For max-t, subsamples are tested by
    sign flips with Bonferroni.
    """
    if not any(len(pair.own) > SMALL for pair in pairs):
        return Diagnosis(CANNOT_TELL, f"No contrast has more than {SMALL} problems.", [])
    if any(row["p"] is None for row in judged):
        return Diagnosis(CANNOT_TELL, "Fewer than two problems of some contrast were measured.", [])
    if decision.get("margin"):
        return Diagnosis(CANNOT_TELL, "The rule asks about a margin, not about differences from zero.", [])
    if not all(pair.counts for pair in pairs):
        return Diagnosis(
            CANNOT_TELL, "Answers are scored or come in clusters; 50 right or wrong ones are tried.", []
        )
    level, (times, seed) = float(decision["alpha"]) / len(pairs), draws(decision)
    rng = np.random.default_rng([seed, SMALL])
    choices: dict[tuple[str, int], NDArray[np.int64]] = {}
    rows, found = [], []
    for pair, row in zip(pairs, judged, strict=True):
        sums = (pair.own - pair.other).sum(axis=1).round().astype(np.int64)
        n, seeds = pair.own.shape
        if (pair.task, n) not in choices:
            choices[pair.task, n] = rng.random((SUBSAMPLES, n)).argsort(axis=1)[:, :SMALL]
        chosen = sums[choices[pair.task, n]]
        nets = chosen.sum(axis=1)
        means = nets / (chosen.shape[1] * seeds)
        p = power.p_values(decision["method"], power.counted(chosen, seeds), times, rng)
        call = "better" if row["better"] else "worse" if row["worse"] else "neither"
        difference = float(sums.mean() / seeds)
        called = np.where(p > level, "neither", np.where(nets > 0, "better", "worse"))
        low, high = map(float, np.quantile(means, [0.025, 0.975]))
        turned, otherwise = float((nets * sums.sum() < 0).mean()), float((called != call).mean())
        place = *pair[:3], pair.against
        rows.append(Small(*place, n, difference, call, low, high, turned, otherwise))
        found.append((nets, p))
    other = _other_verdicts(found, decision, judged)
    told = [row for row in rows if row.call != "neither"]
    lost = sum(row.other_call >= OFTEN for row in told)
    turned_rows = [row for row in rows if row.other_sign >= OFTEN]
    says = f"{SMALL} problems a task give another verdict in {100 * other:.0f} % of {SUBSAMPLES:,} choices. "
    if told:
        says += (
            f"Of {len(told)} contrasts that are better or worse on all, {lost} are called otherwise in 5 % "
            "of them or more. "
        )
    says += f"The sign turns that often in {len(turned_rows)} of {len(rows)} contrasts."
    seen = other >= OFTEN or bool(turned_rows)
    return Diagnosis(SEEN if seen else NOT_SEEN, says, rows)


def _other_verdicts(
    found: Sequence[tuple[NDArray[np.int64], NDArray[np.float64]]],
    decision: Mapping[str, Any],
    judged: Sequence[Mapping[str, Any]],
) -> float:
    """Return the share of subsamples with another verdict than all problems.

    choices_by_contrast: for each contrast the lanes gained minus lost, and p, of each subsample.
    """
    rule, level = rules.RULES[decision["rule"]], float(decision["alpha"]) / len(judged)

    def said(values: Iterable[tuple[int, float]], problems: Sequence[int]) -> str:
        contrasts = []
        for (net, p), row, n in zip(values, judged, problems, strict=True):
            lanes = n * row["seeds"]
            lost = net < 0 and p <= level  # the simultaneous interval is below zero
            contrasts.append(
                Contrast(
                    **{name: row[name] for name in ("model", "task", "budget", "subject", "against")},
                    delta=net / lanes,
                    high=-1.0 if lost else 1.0,
                    p=p,
                    adjusted=min(1.0, p * len(judged)),
                    matched=row["matched"],
                    net=net,
                    lanes=lanes,
                )
            )
        return rule.verdict(contrasts, decision)

    of = [row["n"] for row in judged]
    whole = said(((row["gains"] - row["losses"], float(row["p"])) for row in judged), of)
    nets, p = (np.stack(each, axis=1) for each in zip(*found, strict=True))
    few = [min(n, SMALL) for n in of]
    each = [said(zip(*choice, strict=True), few) for choice in zip(nets.tolist(), p.tolist(), strict=True)]
    return float(np.mean([word != whole for word in each]))


def proxies(
    lanes: pd.DataFrame, tolerance: float, development: Sequence[Development], shared: bool
) -> Diagnosis:
    """Detect cheap proxies that disagree with the run.

    Compares, within each cell over its evicting arms, slots at the end of the prefill with mean slots, and
    these with bytes; and, for a sweep, development with held-out differences. Seconds per token are reported.
    shared: lanes of several arms were decoded in one batch, so that seconds are those of the batch.
    """
    cells = []
    for (model, task, budget), cell in lanes[lanes["budget"] != "full"].groupby(PLACE, sort=False):
        arm = cell.groupby("arm", sort=False)[["prefill_end", "mean_slots", "mean_bytes", "seconds"]].mean()
        arm["seconds"] /= cell.groupby("arm", sort=False)["tokens"].mean()
        if len(arm) > 1 and arm.notna().all(axis=None):
            slots, mean, held, seconds = map(float, arm.max() / arm.min() - 1)
            cells.append(Apart(model, task, budget, len(arm), slots, mean, held, seconds))
    if not cells and not development:
        return Diagnosis(CANNOT_TELL, "No cell has two arms that evict and were measured.", [])
    drifts = [
        cell
        for cell in cells
        if cell.prefill_end <= tolerance < cell.mean_slots or cell.mean_slots <= tolerance < cell.mean_bytes
    ]
    turned = [one for one in development if one.development * one.held_out < 0]
    says = (
        "Slots at the end of the prefill, mean slots and bytes: arms that are alike in one are not in the "
        f"next in {len(drifts)} of {len(cells)} cells. "
    )
    if development:
        says += (
            "Differences on development problems turn their sign on held-out ones in "
            f"{len(turned)} of {len(development)} cells. "
        )
    says += (
        "Seconds tell no arms apart: lanes of several decoded in company."
        if shared
        else "Seconds are those of one machine, and not compared."
    )
    return Diagnosis(SEEN if drifts or turned else NOT_SEEN, says, [*cells, *development])


def single_model(pairs: Sequence[Pairing]) -> Diagnosis:
    """Detect contrasts whose sign differs on another model. Rows are those of `transfer.transfer_table`, with
    95 % t intervals, for every two models; problems of a task are paired across models.
    """
    models = list(dict.fromkeys(pair.model for pair in pairs))
    if len(models) == 1:
        says = f"Only {models[0]} ran: nothing here tells whether a sign transfers."
        return Diagnosis(SEEN, says, [])
    rows, lacking, flipped = [], 0, 0
    for first, second in itertools.combinations(models, 2):
        found: list[dict[str, NDArray[np.float64]]] = [{}, {}]
        clusters: dict[str, Clusters] = {}
        for pair in pairs:
            if pair.model in (first, second):
                own = "" if len({one.subject for one in pairs}) == 1 else f"{pair.subject} "
                cell = f"{own}{pair.task} {pair.budget} against {pair.against}"
                found[pair.model == second][cell] = pair.difference
                clusters[cell] = pair.clusters
        same = [name for name in found[0] if len(found[0][name]) == len(found[1][name]) > 1]
        lacking += len(found[0]) - len(same)
        if same:
            table = transfer.table(
                *({name: each[name] for name in same} for each in found), clusters=clusters
            )
            rows += [{"primary_model": first, "transfer_model": second, **row._asdict()} for row in table]
            # Signs of rounded sums: a mean of zero has no sign.
            sums = [{name: round(float(each[name].sum()), 6) for name in same} for each in found]
            flipped += sum(sums[0][name] * sums[1][name] < 0 for name in same)
    signs = [row["signs"] for row in rows]
    if "oppose" in signs:
        verdict = SEEN
    else:
        verdict = NOT_SEEN if signs and set(signs) == {"agree"} and not lacking else CANNOT_TELL
    says = (
        f"The differences have opposite signs in {flipped} of {len(rows)} cells on two models. Where neither "
        f"95 % interval reaches zero, {signs.count('agree')} agree and {signs.count('oppose')} oppose; "
        f"{signs.count('open')} are open."
    )
    return Diagnosis(verdict, says, rows)


def extraction_collapse(arms: Mapping[tuple[str, ...], pd.DataFrame]) -> Diagnosis:
    """Detect arms whose wrong outputs are mostly no answers. Arms with fewer than 20 are skipped."""
    rows = []
    for (model, task, budget, arm), lanes in arms.items():
        columns = {"correct": 0, "grade": "no answer", "stop": "length", "state": "ok"}
        counts = (int((lanes[name] == value).sum()) for name, value in columns.items())
        rows.append(Ended(model, task, budget, arm, *counts))
    read = [row for row in rows if row.wrong >= FEW]
    if not read:
        return Diagnosis(CANNOT_TELL, f"No arm has {FEW} wrong answers.", rows)
    collapsed = [row for row in read if row.no_answer / row.wrong >= COLLAPSE]
    shares = [100 * row.no_answer / row.wrong for row in read]
    says = (
        f"No answer at all in {min(shares):.0f} to {max(shares):.0f} % of the wrong answers of an arm; "
        f"{100 * COLLAPSE:.0f} % or more, the paper's least, in {len(collapsed)} of {len(read)}."
    )
    if any(row.budget == "full" for row in collapsed):
        says += " The full cache is among them: there it is not the eviction."
    return Diagnosis(SEEN if collapsed else NOT_SEEN, says, rows)


def _within(ratio: float, tolerance: float) -> bool:
    return max(ratio, 1 / ratio) <= 1 + tolerance + 1e-12
