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
from numpy.typing import ArrayLike, NDArray

from analysis import rules
from analysis.judgement import contrasts, memory
from analysis.judgement.contrasts import Pairing, problem_table
from analysis.rules.rule import Contrast
from analysis.rules.sentences import uninformative_rows
from analysis.stats import memory_matching, power
from analysis.stats.comparison import Comparison
from analysis.stats.interval import DegenerateDifference
from analysis.stats.methods import draws_and_seed
from analysis.stats.paired_tests import student_t
from analysis.stats.resampled_units import Clusters, count_units, resampling_units

DETECTED, NOT_DETECTED, CANNOT_TELL = "seen", "not seen", "cannot tell"
SUBSAMPLE_SIZE = 50  # problems
SUBSAMPLES = 2_000
MAX_DISAGREEMENT = 0.05  # share of subsamples that disagree, from which on a mode is detected
COLLAPSE_SHARE = 0.44  # share of wrong outputs without an answer: the paper's minimum at 64 slots
MIN_WRONG = 20  # wrong answers; no share is computed for fewer
CELL_COLUMNS = ["model", "task", "budget"]


class Diagnosis(NamedTuple):
    verdict: str
    says: str  # one or two sentences
    rows: list[Any]  # the numbers behind it


class MemoryRatios(NamedTuple):
    """Ratios of subject to comparator, of means over problems."""

    prefill_end: float  # slots at the end of the prefill
    mean: float  # slots over the whole generation
    peak: float  # slots
    mean_bytes: float


class MemoryRow(NamedTuple):
    """The memory of a contrast, and its difference interpolated to equal memory."""

    model: str
    task: str
    budget: str
    against: str
    ratios: MemoryRatios | None  # None for fewer than two measured problems
    interpolated: Comparison | None  # 95 %; None if no two budgets of the comparator bracket the subject
    between: list[str] | None


class SubsampleRow(NamedTuple):
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


class ProxyRow(NamedTuple):
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


class TransferRow(NamedTuple):
    """One cell (task, budget, comparator ...) on both models."""

    cell: str
    primary: Comparison
    transfer: Comparison
    signs: str  # "agree", "oppose", or "open" if an interval reaches zero
    apart: Comparison  # transfer minus primary, -2 to 2, paired by problem


class EndingsRow(NamedTuple):
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
        return Diagnosis(CANNOT_TELL, "The comparator is the full cache, so that memory differs on purpose.", [])
    rows = []
    for index, pair in enumerate(pairs):
        problems = sorted({*arms[pair[:4]]["problem"]})
        sizes = memory.slot_bytes(lock, pair) or (1, 1)
        ratios, comparison, between = _memory_ratios(pair, arms, problems, sizes[0] / sizes[1]), None, None
        (subject_reference, *comparator_references), finished = contrasts.reference_tables(
            pair, arms, budgets, problems, lock
        )
        clusters = contrasts.problem_clusters(lock, pair.task, finished)
        estimate = None
        tables = subject_reference.correct, subject_reference.slots, comparator_references
        if ratios is not None and count_units(clusters, len(finished)) > 1:
            estimate = memory_matching.interpolate_difference(*tables)
        if estimate is not None:
            rng = np.random.default_rng([seed, index])
            comparison = memory_matching.bootstrap_interpolated(
                *tables, estimate, reps=times, rng=rng, clusters=clusters
            )
            between = [budgets[estimate.below], budgets[estimate.above]]
        rows.append(MemoryRow(*pair[:3], pair.against, ratios, comparison, between))
    measured = [(row, row.ratios) for row in rows if row.ratios is not None]
    if not measured:
        return Diagnosis(CANNOT_TELL, "No contrast has two problems with measured memory.", rows)
    hidden = [
        (row, ratios)
        for row, ratios in measured
        if _is_within(ratios.prefill_end, tolerance) and not _is_within(ratios.mean, tolerance)
    ]
    if hidden:
        worst, ratios = max(hidden, key=lambda entry: abs(math.log(entry[1].mean)))
        says = (
            f"{len(hidden)} of {len(rows)} contrasts match in memory at the end of the prefill but not in "
            f"the mean over the generation; against {worst.against} at {worst.budget} the ratio goes from "
            f"{ratios.prefill_end:.3f} to {ratios.mean:.3f}."
        )
        return Diagnosis(DETECTED, says, rows)
    matched = sum(_is_within(ratios.mean, tolerance) for _, ratios in measured)
    means, ends = zip(*((ratios.mean, ratios.prefill_end) for _, ratios in measured), strict=True)
    says = (
        f"{matched} of {len(rows)} contrasts match in mean memory over the generation: subject over "
        f"comparator is {min(means):.4f} to {max(means):.4f}, and at the end of the prefill "
        f"{min(ends):.4f} to {max(ends):.4f}."
    )
    return Diagnosis(NOT_DETECTED, says, rows)


def _memory_ratios(
    pair: Pairing, arms: Mapping[tuple[str, ...], pd.DataFrame], problems: list[str], slot: float
) -> MemoryRatios | None:
    """Return the memory ratios of a contrast. slot: bytes per slot of the subject over the comparator's."""
    columns = ("prefill_end", "mean_slots", "peak_slots", "mean_bytes")
    subject, comparator = (
        np.array([problem_table(arms[*pair[:3], arm], column, problems) for column in columns])
        for arm in (pair.subject, pair.against)
    )
    is_measured = ~np.isnan([subject, comparator]).any(axis=(0, 1, 3))
    if is_measured.sum() < 2:
        return None
    columns_and_factors = zip(subject[:, is_measured], comparator[:, is_measured], (slot, slot, slot, 1.0), strict=True)
    return MemoryRatios(
        *(
            factor * float(numerator.mean() / denominator.mean())
            for numerator, denominator, factor in columns_and_factors
        )
    )


def small_sample(
    pairs: Sequence[Pairing], decision: Mapping[str, Any], judged: Sequence[Mapping[str, Any]], judging: int
) -> Diagnosis:
    """Detect how often 50 problems per task would give another sign, call or verdict.

    Applies the registered method and rule to 2,000 random subsamples of 50 problems per task, without replacement; the
    contrasts of a task share a subsample. judged: the contrasts judged on all problems, in the order of `pairs`; memory
    is assumed to match as on all problems. For max-t, subsamples are tested by sign flips with Bonferroni.
    """
    if not any(len(pair.subject_correct) > SUBSAMPLE_SIZE for pair in pairs):
        return Diagnosis(CANNOT_TELL, f"No contrast has more than {SUBSAMPLE_SIZE} problems.", [])
    if any(row["p"] is None for row in judged):
        return Diagnosis(CANNOT_TELL, "Some contrast has fewer than two measured problems.", [])
    if decision.get("margin"):
        return Diagnosis(CANNOT_TELL, "The rule tests a margin, not differences from zero.", [])
    if not all(pair.is_countable for pair in pairs):
        return Diagnosis(
            CANNOT_TELL,
            "Answers are scored or clustered; this check needs independent answers that are right or wrong.",
            [],
        )
    level, (times, seed) = float(decision["alpha"]) / len(pairs), draws_and_seed(decision)
    rng = np.random.default_rng([seed, SUBSAMPLE_SIZE])
    choices: dict[tuple[str, int], NDArray[np.int64]] = {}
    rows, choices_by_contrast = [], []
    for pair, row in zip(pairs, judged, strict=True):
        sums = (pair.subject_correct - pair.comparator_correct).sum(axis=1).round().astype(np.int64)
        n, seeds = pair.subject_correct.shape
        if (pair.task, n) not in choices:
            choices[pair.task, n] = rng.random((SUBSAMPLES, n)).argsort(axis=1)[:, :SUBSAMPLE_SIZE]
        chosen = sums[choices[pair.task, n]]
        nets = chosen.sum(axis=1)
        means = nets / (chosen.shape[1] * seeds)
        p = power.p_values(decision["method"], power.count_sums(chosen, seeds), times, rng)
        call = "better" if row["better"] else "worse" if row["worse"] else "neither"
        difference = float(sums.mean() / seeds)
        called = np.where(p > level, "neither", np.where(nets > 0, "better", "worse"))
        low, high = map(float, np.quantile(means, [0.025, 0.975]))
        sign_changes, call_changes = float((nets * sums.sum() < 0).mean()), float((called != call).mean())
        labels = *pair[:3], pair.against
        rows.append(SubsampleRow(*labels, n, difference, call, low, high, sign_changes, call_changes))
        choices_by_contrast.append((nets, p))
    verdict_change = _verdict_change_share(choices_by_contrast, decision, judged, judging)
    decisive = [row for row in rows if row.call != "neither"]
    changed = sum(row.other_call >= MAX_DISAGREEMENT for row in decisive)
    turned_rows = [row for row in rows if row.other_sign >= MAX_DISAGREEMENT]
    says = (
        f"Random subsets of {SUBSAMPLE_SIZE} problems per task give another verdict in "
        f"{100 * verdict_change:.0f} % of {SUBSAMPLES:,} draws. "
    )
    if decisive:
        says += (
            f"Of {len(decisive)} contrasts that are better or worse on all problems, {changed} get another "
            "outcome in 5 % of the draws or more. "
        )
    says += f"The sign is reversed in 5 % of the draws or more in {len(turned_rows)} of {len(rows)} contrasts."
    is_detected = verdict_change >= MAX_DISAGREEMENT or bool(turned_rows)
    return Diagnosis(DETECTED if is_detected else NOT_DETECTED, says, rows)


def _verdict_change_share(
    choices_by_contrast: Sequence[tuple[NDArray[np.int64], NDArray[np.float64]]],
    decision: Mapping[str, Any],
    judged: Sequence[Mapping[str, Any]],
    judging: int,
) -> float:
    """Return the share of subsamples with another verdict than all problems.

    choices_by_contrast: for each contrast the lanes gained minus lost, and p, of each subsample.
    """
    rule, level = rules.RULES[decision["rule"]], float(decision["alpha"]) / len(judged)

    def rule_verdict(values: Iterable[tuple[int, float]], problems: Sequence[int]) -> str:
        contrasts = []
        for (net, p), row, n in zip(values, judged, problems, strict=True):
            lanes = n * row["seeds"]
            is_lost = net < 0 and p <= level  # the simultaneous interval is below zero
            contrasts.append(
                Contrast(
                    **{name: row[name] for name in ("model", "task", "budget", "subject", "against")},
                    delta=net / lanes,
                    high=-1.0 if is_lost else 1.0,
                    p=p,
                    adjusted=min(1.0, p * len(judged)),
                    matched=row["matched"],
                    net=net,
                    lanes=lanes,
                    informative=not uninformative_rows([row]),
                )
            )
        return rule.decide(contrasts, decision, judging)

    sizes = [row["n"] for row in judged]
    full_verdict = rule_verdict(((row["gains"] - row["losses"], float(row["p"])) for row in judged), sizes)
    nets, p = (np.stack(verdicts, axis=1) for verdicts in zip(*choices_by_contrast, strict=True))
    subsample_sizes = [min(n, SUBSAMPLE_SIZE) for n in sizes]
    verdicts = [
        rule_verdict(zip(*choice, strict=True), subsample_sizes)
        for choice in zip(nets.tolist(), p.tolist(), strict=True)
    ]
    return float(np.mean([verdict != full_verdict for verdict in verdicts]))


def proxies(lanes: pd.DataFrame, tolerance: float, development: Sequence[Development], shared: bool) -> Diagnosis:
    """Detect cheap proxies that disagree with the run.

    Compares, within each cell over its evicting arms, slots at the end of the prefill with mean slots, and
    these with bytes; and, for a sweep, development with held-out differences. Seconds per token are reported.
    shared: lanes of several arms were decoded in one batch, so that seconds are those of the batch.
    """
    cells = []
    for (model, task, budget), cell in lanes[lanes["budget"] != "full"].groupby(CELL_COLUMNS, sort=False):
        arm = cell.groupby("arm", sort=False)[["prefill_end", "mean_slots", "mean_bytes", "seconds"]].mean()
        arm["seconds"] /= cell.groupby("arm", sort=False)["tokens"].mean()
        if len(arm) > 1 and arm.notna().all(axis=None):
            slots, mean, memory, seconds = map(float, arm.max() / arm.min() - 1)
            cells.append(ProxyRow(model, task, budget, len(arm), slots, mean, memory, seconds))
    if not cells and not development:
        return Diagnosis(CANNOT_TELL, "No cell has two arms that evict and whose memory was measured.", [])
    drifts = [
        cell
        for cell in cells
        if cell.prefill_end <= tolerance < cell.mean_slots or cell.mean_slots <= tolerance < cell.mean_bytes
    ]
    reversed_signs = [row for row in development if row.development * row.held_out < 0]
    says = (
        f"Slots at the end of the prefill, mean slots and mean bytes: in {len(drifts)} of {len(cells)} "
        "cells the arms agree in one of these but differ in the next. "
    )
    if development:
        says += (
            "The sign of the difference changes from development to held-out problems in "
            f"{len(reversed_signs)} of {len(development)} cells. "
        )
    says += (
        "Seconds cannot be compared between arms, because lanes of several arms were decoded in one batch."
        if shared
        else "Seconds were measured on one machine and are not compared."
    )
    return Diagnosis(DETECTED if drifts or reversed_signs else NOT_DETECTED, says, [*cells, *development])


def single_model(pairs: Sequence[Pairing]) -> Diagnosis:
    """Detect contrasts whose sign differs on another model. Rows are those of `transfer_table`, with
    95 % t intervals, for every two models; problems of a task are paired across models.
    """
    models = list(dict.fromkeys(pair.model for pair in pairs))
    if len(models) == 1:
        says = f"Only {models[0]} ran, so that nothing shows whether a sign transfers to another model."
        return Diagnosis(DETECTED, says, [])
    rows, lacking, flipped = [], 0, 0
    for first, second in itertools.combinations(models, 2):
        differences: list[dict[str, NDArray[np.float64]]] = [{}, {}]
        clusters: dict[str, Clusters] = {}
        for pair in pairs:
            if pair.model in (first, second):
                prefix = "" if len({member.subject for member in pairs}) == 1 else f"{pair.subject} "
                cell = f"{prefix}{pair.task} {pair.budget} against {pair.against}"
                differences[pair.model == second][cell] = pair.difference
                clusters[cell] = pair.clusters
        shared = [name for name in differences[0] if len(differences[0][name]) == len(differences[1][name]) > 1]
        lacking += len(differences[0]) - len(shared)
        if shared:
            table = transfer_table(
                *({name: by_cell[name] for name in shared} for by_cell in differences), clusters=clusters
            )
            rows += [{"primary_model": first, "transfer_model": second, **row._asdict()} for row in table]
            # Signs of rounded sums: a mean of zero has no sign.
            sums = [{name: round(float(by_cell[name].sum()), 6) for name in shared} for by_cell in differences]
            flipped += sum(sums[0][name] * sums[1][name] < 0 for name in shared)
    signs = [row["signs"] for row in rows]
    verdict = NOT_DETECTED if set(signs) == {"agree"} and not lacking else CANNOT_TELL
    verdict = DETECTED if "oppose" in signs else verdict
    says = (
        f"The differences have opposite signs in {flipped} of {len(rows)} cells on two models. Where neither "
        f"95 % interval reaches zero, {signs.count('agree')} agree and {signs.count('oppose')} oppose; "
        f"{signs.count('open')} are open."
    )
    return Diagnosis(verdict, says, rows)


def transfer_table(
    primary: Mapping[str, ArrayLike],
    transfer: Mapping[str, ArrayLike],
    *,
    level: float = 0.95,
    clusters: Mapping[str, Clusters] | None = None,
) -> list[TransferRow]:
    """Return a row per cell, in the order of `primary`; t on problem means, not corrected for the number of cells.

    primary, transfer: difference[problem, seed] of each cell on that model, on the same problems in the same
        order; the number of seeds may differ. Problem means of the two models are paired, since the same
        problems are hard for both. clusters: of the problems of each cell; None for no clusters.

    Raises DegenerateDifference for cells that one model lacks, or that differ in their problems.
    """
    if not primary or primary.keys() != transfer.keys():
        lacking = sorted(primary.keys() ^ transfer.keys())
        raise DegenerateDifference(
            f"cells: {lacking} exist on one model only; pass the same cells for both models, and at least one"
        )
    cell_clusters = clusters or {}
    return [_transfer_row(cell, primary[cell], transfer[cell], cell_clusters.get(cell), level) for cell in primary]


def _transfer_row(cell: str, primary: ArrayLike, transfer: ArrayLike, clusters: Clusters, level: float) -> TransferRow:
    def compare(difference: ArrayLike) -> Comparison:
        units = resampling_units(difference, clusters)
        return units.rescale(student_t(units.values, level=level))

    primary_result, transfer_result = compare(primary), compare(transfer)
    means = [np.asarray(values, dtype=np.float64).mean(axis=1) for values in (primary, transfer)]
    if len(means[0]) != len(means[1]):
        raise DegenerateDifference(
            f"{cell}: the models have {len(means[0])} and {len(means[1])} problems; pass the same problems for both"
        )
    half = compare((means[1] - means[0])[:, None] / 2)
    change = Comparison(2 * half.mean, 2 * half.low, 2 * half.high, half.p)
    return TransferRow(cell, primary_result, transfer_result, _compare_signs(primary_result, transfer_result), change)


def _compare_signs(primary: Comparison, transfer: Comparison) -> str:
    if primary.low <= 0 <= primary.high or transfer.low <= 0 <= transfer.high:
        return "open"
    return "agree" if (primary.low > 0) == (transfer.low > 0) else "oppose"


def extraction_collapse(arms: Mapping[tuple[str, ...], pd.DataFrame]) -> Diagnosis:
    """Detect arms whose wrong outputs are mostly no answers. Arms with fewer than 20 are skipped."""
    rows = []
    for (model, task, budget, arm), lanes in arms.items():
        columns = {"correct": 0, "grade": "no answer", "stop": "length", "state": "ok"}
        counts = (int((lanes[name] == value).sum()) for name, value in columns.items())
        rows.append(EndingsRow(model, task, budget, arm, *counts))
    read = [row for row in rows if row.wrong >= MIN_WRONG]
    if not read:
        return Diagnosis(CANNOT_TELL, f"No arm has {MIN_WRONG} wrong answers.", rows)
    collapsed = [row for row in read if row.no_answer / row.wrong >= COLLAPSE_SHARE]
    shares = [100 * row.no_answer / row.wrong for row in read]
    says = (
        f"{min(shares):.0f} to {max(shares):.0f} % of the wrong answers of an arm contain no answer at "
        f"all; {len(collapsed)} of {len(read)} reach {100 * COLLAPSE_SHARE:.0f} %, the smallest share that "
        "the paper reports."
    )
    if any(row.budget == "full" for row in collapsed):
        says += " The full cache is among them, where eviction cannot be the cause."
    return Diagnosis(DETECTED if collapsed else NOT_DETECTED, says, rows)


def _is_within(ratio: float, tolerance: float) -> bool:
    return max(ratio, 1 / ratio) <= 1 + tolerance + 1e-12
