"""Show what each ablation of a finished study says about the part that it removes.

    kv-prereg ablations registrations/crystal-ablations
    kv-prereg ablations registrations/crystal-ablations --json

Prints for each ablation: the settings in which it differs from its parent, as locked; its accuracy minus that
of the parent, with an interval and p corrected for all contrasts shown; whether both used the same memory; and
whether the claim about it is supported, contradicted or undecided. The claims are those of [claims] in the
protocol. Without any, the assumed claim is that every part helps, so that an ablation is worse than its parent.
All of this is outside the registered rule and decides nothing; assumed claims are exploratory.

The parent of a registered claim may be the full cache, which uses more memory on purpose. Memory is then not
charged, and a cell is undecided unless its arm uses less memory by more than the registered tolerance.

The claims of a study are one family. A claim is supported if every cell (model, task, budget) supports it at
alpha divided by the number of claims. This is an intersection-union test, so that the number of cells needs no
correction. A cell is undecided if its full cache fails the gate or if it is below the floor (both arms guess, or a
margin could not be lost); cells of fewer than 200 problems are only a screening. A claim is contradicted if one
cell contradicts it, at alpha divided by the number of all contrasts. The p of a claim is the largest p of its
cells; Holm's p over the claims is printed next to it. "needs n" is the number of problems at which a cell would be
decided, either way, with 80 % power, if the true difference and spread were those measured. It is a rough estimate
if few problems differ.

Exit status: 0 printed, whatever the outcomes; 2 no verdict yet, or the folder cannot be read.
"""

import sys
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from analysis.judgement import arm_text, floor, gate, memory
from analysis.judgement.contrasts import Pairing, apply_missing_rule, pair_arms
from analysis.judgement.judged_folder import read_judged
from analysis.judgement.judging_rules import is_judged_as_shipped
from analysis.judgement.memory import Arms
from analysis.judgement.outside_runs import refuse_outside
from analysis.judgement.study_files import read_study
from analysis.judgement.study_table import Study
from analysis.judgement.untrusted_files import RecordError
from analysis.rules import full_cache_gate, verdict_line
from analysis.rules.judged_numbers import format_p
from analysis.stats import equivalence, memory_charge, multiplicity, resampled_units
from analysis.stats.comparison import Comparison
from analysis.stats.interval import problem_means
from analysis.stats.methods import MIN_CONFIRMATORY, draws_and_seed
from analysis.stats.sample_size import problems_needed
from protocol.formats import text_tables
from protocol.formats.reading_command import run_command
from protocol.formats.settings_difference import differing_parts, differing_settings
from protocol.formats.text_tables import format_points
from protocol.formats.vocabulary import FULL

CLAIM_KINDS = ("worse", "same", "better")
SUPPORTED, CONTRADICTED, UNDECIDED = "supported", "contradicted", "undecided"
UNGRADED, UNMATCHED = "lanes without a grade", "memory did not match"
UNSAVED = "the arm does not use less memory than the full cache"
UNABLE = "the full cache fails its gate"
FLOORED = "below the floor: the arms do no better than guessing, or accuracy is too low to lose the margin"
STRUCTURE_UNKNOWN = "the lock of this study does not contain it"


class Claim(NamedTuple):
    """The arm is worse than, the same as (within the margin) or better than its parent, in every cell."""

    name: str
    arm: str
    parent: str
    says: str
    margin: float | None  # accuracy points; only for "same"


class Effect(NamedTuple):
    """Arm minus parent, in accuracy points."""

    difference: float
    low: float  # simultaneous: at the Bonferroni level of the family
    high: float
    p: float  # two-sided; for "same", the p of a difference of the margin or more
    p_corrected: float  # Bonferroni
    p_claim: float  # null: the claim is false in this cell; 1 on the other side of zero
    cache_ratio: float
    matched: bool


class Levels(NamedTuple):
    """The levels of the two kinds of errors of a family of claims, each at most alpha for the family."""

    claim: float  # alpha over the number of claims: support has to hold in every cell
    contrast: float  # alpha over the number of contrasts: one cell contradicts


class Cell(NamedTuple):
    """The result of a claim in one model, task and budget."""

    model: str
    task: str
    budget: str
    n: int
    effect: Effect | None  # None for fewer than two measured problems
    outcome: str
    needs: int | None  # problems (or clusters) that an undecided cell needs
    why: str  # the reason if there is no such number, else empty


def judge_claims(folder: Path) -> dict[str, Any]:
    """Return the report of FOLDER. Raises RecordError without a verdict or for records that cannot be read."""
    judged = read_judged(Path(folder))
    study = read_study(Path(folder))
    refuse_outside(folder, study.lock)
    content = study.lock["protocol"]["content"]
    decision = content["decision"]
    settings = arm_text.policy_settings(study.lock, judged, decision["subject"])
    claims = _registered_claims(content) if "claims" in content else _implied_claims(study, judged, settings)
    graded = apply_missing_rule(study)
    pairs = pair_arms(graded.study, [(claim.arm, claim.parent) for claim in claims])
    lanes = graded.decisive[["model", "task", "budget", "arm"]]
    open_lanes = set(lanes.itertuples(index=False, name=None))
    failed, evicting = gate.failed_gates(judged), _evicting_arms(study)
    alpha, arms = float(decision["alpha"]), graded.study.by_arm()
    levels = Levels(alpha / max(1, len(claims)), alpha / max(1, len(pairs)))
    required_floor = None if is_judged_as_shipped(study.lock) else floor.read_floor(study.lock, judged["gate"])
    rows = []
    for position, claim in enumerate(claims):
        indices = range(position, len(pairs), len(claims))
        cells = []
        for index in indices:
            cell = _judge_cell(claim, pairs[index], arms, study.lock, index, levels, open_lanes)
            if (cell.model, cell.task) in failed:
                cell = cell._replace(outcome=UNDECIDED, needs=None, why=UNABLE)
            if required_floor is not None and _is_below_floor(claim, pairs[index], required_floor):
                cell = cell._replace(outcome=UNDECIDED, needs=None, why=FLOORED)
            cells.append(cell)
        rows.append(_claim_row(claim, cells, settings, full=claim.parent not in evicting))
    if rows:
        adjusted = zip(*multiplicity.adjust([row["p"] for row in rows]), strict=True)
        rows = [row | {"p_bonferroni": p, "p_holm": holm} for row, (p, holm) in zip(rows, adjusted, strict=True)]
    named = {decision["subject"], *(arm for claim in claims for arm in (claim.arm, claim.parent))}
    return {
        "name": study.lock["name"],
        "title": content["title"],
        "verdict": verdict_line.verdict_word(judged),
        "said": verdict_line.format_line(judged, full_cache_gate.describe_failure(judged)),
        "claims_are": "registered" if "claims" in content else "implied",
        "structure": "locked" if settings is not None else STRUCTURE_UNKNOWN,
        "method": decision["method"],
        "family": len(pairs),
        "claim_alpha": levels.claim,
        "corrected_alpha": levels.contrast,
        "claims": rows,
        "others": [arm for arm in evicting if arm not in named],
    }


def claim_outcome(claim: Claim, p: float, level: float, interval: Comparison) -> str:
    """Return the outcome of a claim in a cell. p supports the claim at `level`. interval: of arm minus parent,
    two-sided, at the level of one contrast; it contradicts on the wrong side of zero or of the margin.
    """
    if p <= level:
        return SUPPORTED
    is_above, is_below = interval.low > (claim.margin or 0), interval.high < -(claim.margin or 0)
    is_wrong = {"worse": is_above, "better": is_below, "same": is_above or is_below}[claim.says]
    return CONTRADICTED if is_wrong else UNDECIDED


def _is_below_floor(claim: Claim, pairing: Pairing, required_floor: floor.Floor) -> bool:
    margin = Fraction(str(claim.margin or 0))
    return bool(floor.floor_row(pairing, required_floor._replace(margin=margin))["uninformative"])


def _registered_claims(content: Mapping[str, Any]) -> list[Claim]:
    subject = content["decision"]["subject"]
    claims = []
    for name, entry in content["claims"].items():
        if entry["says"] not in CLAIM_KINDS or (entry["says"] == "same") != ("margin" in entry):
            raise RecordError(
                f"claims.{name}.says: {entry['says']!r} is unknown; write worse, better, or same with a margin"
            )
        margin = float(entry["margin"]) if "margin" in entry else None
        claims.append(Claim(name, entry["arm"], entry.get("parent", subject), entry["says"], margin))
    return claims


def _implied_claims(
    study: Study, judged: Mapping[str, Any], settings: Mapping[str, Mapping[str, str]] | None
) -> list[Claim]:
    """Return the implied claims: every arm that differs from the subject in one component is worse. If the
    lock does not have the structure, arms whose policy name extends the subject's, or the reverse.
    """
    subject = study.lock["protocol"]["content"]["decision"]["subject"]
    names = arm_text.policy_names(study.lock, judged, subject)

    def is_ablation(arm: str) -> bool:
        if settings is not None:
            return len(differing_parts(settings[arm], settings[subject])) == 1
        short, long = sorted((names[arm], names[subject]), key=len)
        return long.startswith((f"{short}-", f"{short}_"))

    arms = [arm for arm in _evicting_arms(study) if arm != subject]
    return [Claim(arm, arm, subject, "worse", None) for arm in arms if is_ablation(arm)]


def _evicting_arms(study: Study) -> list[str]:
    return list(dict.fromkeys(arm for _, _, budget, arm, _ in study.lock["grid"] if budget != "full"))


def _judge_cell(
    claim: Claim,
    pairing: Pairing,
    arms: Arms,
    lock: Mapping[str, Any],
    index: int,
    levels: Levels,
    open_lanes: set[tuple[str, ...]],
) -> Cell:
    """Judge a claim in one cell, with the draws and the memory charge of a contrast of the verdict."""
    labels, decision = (pairing.model, pairing.task, pairing.budget), lock["protocol"]["content"]["decision"]
    n = len(pairing.subject_correct)
    if len(pairing.measured_memory()[0]) < 2 or pairing.units < 2:
        return Cell(*labels, n, None, UNDECIDED, None, "too few problems")
    difference = pairing.difference
    # These contrasts are not part of the rule's family.
    (times, seed), method = draws_and_seed(decision), decision["method"]

    def rng() -> np.random.Generator:
        return np.random.default_rng([seed, index])

    contrast_memory = memory.contrast_memory(pairing, arms, lock, levels.contrast)
    null = memory_charge.nearest_null(float(difference.mean()), contrast_memory.points)
    difference_and_clusters, level = (difference, pairing.clusters), 1 - levels.contrast
    (uncharged,) = resampled_units.compare_at_levels(
        method, *difference_and_clusters, [level], draws=times, rng=rng, null=null or 0.0
    )
    interval = memory_charge.widen_interval(uncharged, contrast_memory.points)
    p = interval.p if null is not None else 1.0
    if claim.margin is not None:
        one_sided = method if method in equivalence.METHODS else "t"
        equivalent = resampled_units.tost(
            *difference_and_clusters,
            claim.margin,
            contrast_memory.points,
            alpha=levels.claim,
            method=one_sided,
            draws=times,
            rng=rng(),
        )
        p = max(equivalent.p_worse, equivalent.p_better)
    # The sign is that of the exact sum over lanes.
    claimed_sign = {"worse": -1, "same": 0, "better": 1}[claim.says]
    p_claim = p if claimed_sign == np.sign(np.round(difference.sum(), 9)) * abs(claimed_sign) else 1.0
    memory_match = contrast_memory.match
    corrected = min(1.0, float(decision["alpha"]) / levels.contrast * p)
    effect = Effect(*interval[:3], p, corrected, p_claim, memory_match.ratio, memory_match.is_matched)
    parent_budget = FULL if pairing.full else pairing.budget
    if {(*labels, claim.arm), (*labels[:2], parent_budget, claim.parent)} & open_lanes:
        return Cell(*labels, n, effect, UNDECIDED, None, UNGRADED)
    if not memory_match.is_matched:
        return Cell(*labels, n, effect, UNDECIDED, None, UNSAVED if pairing.full else UNMATCHED)
    cell_outcome = claim_outcome(claim, p_claim, levels.claim, interval)
    if cell_outcome != UNDECIDED:
        return Cell(*labels, n, effect, cell_outcome, None, "")
    units, scale = resampled_units.resampling_units(*difference_and_clusters)
    spread = scale * float(problem_means(units).std(ddof=1))
    is_as_claimed = abs(interval.mean) < claim.margin if claim.margin else claimed_sign * interval.mean > 0
    needs = problems_needed(interval.mean, spread, levels.claim if is_as_claimed else levels.contrast, claim.margin)
    return Cell(
        *labels, n, effect, cell_outcome, needs, "" if needs else "no difference from which to plan a sample size"
    )


def _claim_row(
    claim: Claim, cells: Sequence[Cell], settings: Mapping[str, Mapping[str, str]] | None, *, full: bool
) -> dict[str, Any]:
    """Return the row of a claim. full: the parent is the full cache and has no settings to compare."""
    if not cells:
        raise ValueError(f"claims.{claim.name}: no cell was compared, so that nothing can support the claim")
    outcomes = {cell.outcome for cell in cells}
    claim_result = CONTRADICTED if CONTRADICTED in outcomes else UNDECIDED if UNDECIDED in outcomes else SUPPORTED
    undecided = [cell for cell in cells if cell.outcome == UNDECIDED]
    why = next((cell.why for cell in undecided if cell.why), "")
    needs = max((cell.needs for cell in undecided if cell.needs is not None), default=None)
    if claim_result != UNDECIDED or why:
        needs = None
    structure = None
    if settings is not None and not full:
        paths = differing_settings(settings[claim.arm], settings[claim.parent])
        structure = {path: {"parent": old, "arm": new} for path, (old, new) in paths.items()}
    p = max(1.0 if cell.effect is None or _is_open(cell) else cell.effect.p_claim for cell in cells)
    about = {"outcome": claim_result, "p": p, "needs": needs, "why": why if claim_result == UNDECIDED else ""}
    against = {"against_full": True} if full else {}
    return claim._asdict() | against | {"structure": structure} | about | {"cells": list(cells)}


def _is_open(cell: Cell) -> bool:
    """Return whether lanes, memory, the gate or the floor leave the cell undecided, whatever its p."""
    return cell.why in (UNGRADED, UNMATCHED, UNSAVED, UNABLE, FLOORED)


def _format_report(report: Mapping[str, Any]) -> list[str]:
    lines = [report["title"], f"verdict: {report['said']}"]
    claims, others = report["claims"], ", ".join(report["others"])
    arm = "arm" if (full := any(map(_is_against_full, claims))) else "ablation"
    if not claims:
        lines += ["", "No arm of this study is an ablation of its subject."]
        return lines + text_tables.wrap_paragraph(f"Other policies: {others}")
    if report["claims_are"] == "registered":
        lines.append(
            f"These claims about the {arm}s were registered separately and are not part of the rule's verdict."
        )
    else:
        lines.append(
            "No claim was registered. Assumed instead: every part helps, so that each ablation is worse. This "
            "is exploratory."
        )
    lines += text_tables.wrap_paragraph(
        f"{report['family']} contrasts, {arm} minus parent in percentage points of accuracy; "
        f"{report['method']}; intervals and p are Bonferroni-corrected (level "
        f"{report['corrected_alpha']}). A claim is supported if p is at most {report['claim_alpha']} in "
        f"each of its cells: alpha is divided by {len(claims)} claims."
    )
    if full:
        lines += text_tables.wrap_paragraph(
            "Against the full cache, memory differs on purpose, and no charge is made for it. A cell is "
            "undecided if its arm does not use less memory than the full cache."
        )
    if (fewest := min(cell["n"] for claim in claims for cell in claim["cells"])) < MIN_CONFIRMATORY:
        lines += text_tables.wrap_paragraph(
            f"Screening only: with {fewest} problems nothing here is conclusive; a conclusion needs at "
            f"least {MIN_CONFIRMATORY}."
        )
    ablations = [claim for claim in claims if not _is_against_full(claim)]
    lines += [""] if ablations else []
    if ablations and report["structure"] == STRUCTURE_UNKNOWN:
        lines += text_tables.wrap_paragraph(
            f"Structure: {STRUCTURE_UNKNOWN}; that these arms are ablations follows only from the names of "
            "their policies."
        )
    else:
        lines += [line for claim in ablations for line in _structure_lines(claim)]
    table = [_cell_columns(claim, cell) for claim in claims for cell in claim["cells"]]
    head = ("model", "task", "budget", "n", "points", "interval", "p", "memory", "claim")
    lines += ["", *text_tables.format_columns((arm, "against" if full else "of", *head), table), ""]
    for claim in claims:
        margin = f" within {100 * float(claim['margin']):g}" if claim["margin"] else ""
        what = f"{claim['arm']} is {CLAIM_PHRASES[claim['says']]} {_parent_name(claim)}{margin}"
        p, holm = (format_p(claim[name]) for name in ("p_bonferroni", "p_holm"))
        lines.append(f"{what}: {_format_outcome(claim)}, p {p} (Bonferroni over the claims), {holm} (Holm)")
    lines += ["", f"{'No claim' if full else 'Not ablations, no claim'}: {others}"] if others else []
    return lines


CLAIM_PHRASES = {"worse": "worse than", "same": "the same as", "better": "better than"}


def _structure_lines(claim: Mapping[str, Any]) -> list[str]:
    if not claim["structure"]:
        return [f"{claim['arm']}: has the same settings as {claim['parent']}"]
    changed = (f"{path}: {values['parent']} -> {values['arm']}" for path, values in claim["structure"].items())
    return text_tables.wrap_paragraph(f"{claim['arm']} against {claim['parent']}: " + "; ".join(changed))


def _cell_columns(claim: Mapping[str, Any], cell: Mapping[str, Any]) -> tuple[str, ...]:
    labels = (claim["arm"], _parent_name(claim), cell["model"], cell["task"], cell["budget"], str(cell["n"]))
    effect = cell["effect"]
    if effect is None:
        return (*labels, "", "", "", "", _format_outcome(cell))
    difference, low, high = (format_points(float(effect[name])) for name in ("difference", "low", "high"))
    unfair = " not smaller" if _is_against_full(claim) else " unmatched"
    memory = f"{float(effect['cache_ratio']):.3f}" + ("" if effect["matched"] else unfair)
    interval = f"[{low}, {high}]"
    return (*labels, difference, interval, format_p(effect["p_corrected"]), memory, _format_outcome(cell))


def _is_against_full(claim: Mapping[str, Any]) -> bool:
    return "against_full" in claim


def _parent_name(claim: Mapping[str, Any]) -> str:
    return "the full cache" if _is_against_full(claim) else str(claim["parent"])


def _format_outcome(entry: Mapping[str, Any]) -> str:
    if entry["needs"] is not None:
        return f"{entry['outcome']} (needs n = {entry['needs']:,})"
    return f"{entry['outcome']} ({entry['why']})" if entry["why"] else str(entry["outcome"])


def main(argv: Sequence[str] | None = None) -> int:
    path = {"folder": "folder of a confirmed registration, e.g. registrations/crystal-ablations"}
    return run_command("ablations", __doc__, path, judge_claims, argv, text=_format_report)


if __name__ == "__main__":
    sys.exit(main())
