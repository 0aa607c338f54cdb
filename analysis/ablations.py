"""What each ablation of a finished study shows about the part that it takes away.

    kv-prereg ablations registrations/crystal-ablations
    kv-prereg ablations registrations/crystal-ablations --json

For each ablation: the settings in which it differs from its parent, as locked; its accuracy minus the
parent's with an interval and p corrected for all contrasts shown; whether both held the same memory; and, of
the claim about it, supported, contradicted or undecided. Claims are those of the protocol's [claims]. Without
any it is implied that every part helps, so that an ablation is worse than its parent. All of it stands
outside the registered rule and decides nothing; what is implied is exploratory.

A registered claim may have the full cache, which holds more on purpose, for its parent: memory is charged for
nothing, and a cell whose arm does not hold less, beyond the registered tolerance, is undecided.

The claims of a study are one family. A claim is supported when every cell (model, task, budget) supports it
at alpha over the number of claims: all cells have to, an intersection-union test, which needs no correction
for them. A cell whose full cache fails the gate is undecided, and cells of fewer than 200 problems screen. A
claim is contradicted when one cell contradicts it, at alpha over the number of all contrasts. The p of
a claim is the largest of its cells', with Holm's over the claims beside. "needs n" is the number of problems
at which a cell would be decided, either way, with 80 % power, were the difference and its spread between
problems those measured: a guess where few problems differ.

Exit status: 0 printed, whatever the outcomes; 2 no verdict yet, or the folder cannot be read.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from analysis.output import headline, told
from analysis.output.command import UNREADABLE, command
from analysis.output.structure import differing
from analysis.output.told import points
from analysis.rules import full_cache
from analysis.rules.rule import FULL
from analysis.stats import equal_memory, equivalence, multiplicity, resampled_units
from analysis.stats.comparison import Comparison
from analysis.stats.interval import problem_means
from analysis.stats.methods import draws
from analysis.stats.sample_size import needed
from analysis.studies import gate, memory
from analysis.studies.arms import runs
from analysis.studies.contrasts import Pairing, counted, pairings, verdict
from analysis.studies.judgement import CONFIRMATORY
from analysis.studies.memory import Arms
from analysis.studies.study_files import RecordError, Study, read

__all__ = ["SAYS", "Claim", "audit", "outcome"]

SAYS = ("worse", "same", "better")
SUPPORTED, CONTRADICTED, UNDECIDED = "supported", "contradicted", "undecided"
UNGRADED, UNMATCHED = "lanes without a grade", "memory did not match"
UNSAVED = "it does not hold less than the full cache"
UNABLE = "the full cache fails its gate"
NOT_HELD = "the lock of this study does not hold it"


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


def audit(folder: Path) -> dict[str, Any]:
    """Return the report of FOLDER. Raises RecordError without a verdict or for records that cannot be read.
    """
    judged = verdict(Path(folder))
    study = read(Path(folder))
    content = study.lock["protocol"]["content"]
    decision = content["decision"]
    settings = _settings(study.lock, judged)
    claims = _registered(content) if "claims" in content else _implied(study, judged, settings)
    whole = counted(study)
    found = pairings(whole.study, [(claim.arm, claim.parent) for claim in claims])
    lanes = whole.decisive[["model", "task", "budget", "arm"]]
    open_lanes = set(lanes.itertuples(index=False, name=None))
    unable, evicting = gate.closed(judged), _evicting(study)
    alpha, arms = float(decision["alpha"]), whole.study.by_arm()
    levels = Levels(alpha / max(1, len(claims)), alpha / max(1, len(found)))
    rows = []
    for place, claim in enumerate(claims):
        indices = range(place, len(found), len(claims))
        cells = [_cell(claim, found[index], arms, study.lock, index, levels, open_lanes) for index in indices]
        told_of = [
            cell._replace(outcome=UNDECIDED, needs=None, why=UNABLE)
            if (cell.model, cell.task) in unable
            else cell
            for cell in cells
        ]
        rows.append(_row(claim, told_of, settings, full=claim.parent not in evicting))
    if rows:
        bonferroni, holm, _ = multiplicity.adjust([row["p"] for row in rows])
        rows = [row | {"p_bonferroni": p} for row, p in zip(rows, bonferroni, strict=True)]
        rows = [row | {"p_holm": p} for row, p in zip(rows, holm, strict=True)]
    named = {decision["subject"], *(arm for claim in claims for arm in (claim.arm, claim.parent))}
    return {
        "name": study.lock["name"],
        "title": content["title"],
        "verdict": judged["verdict"],
        "said": headline.line(judged, full_cache.fault(judged)),
        "claims_are": "registered" if "claims" in content else "implied",
        "structure": "locked" if settings is not None else NOT_HELD,
        "method": decision["method"],
        "family": len(found),
        "claim_alpha": levels.claim,
        "corrected_alpha": levels.contrast,
        "claims": rows,
        "others": [arm for arm in evicting if arm not in named],
    }


def outcome(claim: Claim, p: float, level: float, interval: Comparison) -> str:
    """Return the outcome of a claim in a cell. p supports the claim at `level`. interval: of arm minus
    parent, two-sided, at the level of one contrast; it contradicts on the wrong side of zero or of the
    margin.
    """
    if p <= level:
        return SUPPORTED
    above, below = interval.low > (claim.margin or 0), interval.high < -(claim.margin or 0)
    wrong = {"worse": above, "better": below, "same": above or below}[claim.says]
    return CONTRADICTED if wrong else UNDECIDED


def _registered(content: Mapping[str, Any]) -> list[Claim]:
    subject = content["decision"]["subject"]
    claims = []
    for name, one in content["claims"].items():
        if one["says"] not in SAYS or (one["says"] == "same") != ("margin" in one):
            raise RecordError(
                f"claims.{name}: says {one['says']!r}; it is worse, better, or same with a margin"
            )
        margin = float(one["margin"]) if "margin" in one else None
        claims.append(Claim(name, one["arm"], one.get("parent", subject), one["says"], margin))
    return claims


def _implied(
    study: Study, judged: Mapping[str, Any], settings: Mapping[str, Mapping[str, str]] | None
) -> list[Claim]:
    """Return the implied claims: every arm that differs from the subject in one component is worse. If the
    lock does not have the structure, arms whose policy name extends the subject's, or the reverse.
    """
    subject = study.lock["protocol"]["content"]["decision"]["subject"]
    names = _policies(study.lock, judged)

    def ablates(arm: str) -> bool:
        if settings is not None:
            paths = differing(settings[arm], settings[subject])
            return len({path.partition(".")[0] for path in paths}) == 1
        short, long = sorted((names[arm], names[subject]), key=len)
        return long.startswith((f"{short}-", f"{short}_"))

    arms = [arm for arm in _evicting(study) if arm != subject]
    return [Claim(arm, arm, subject, "worse", None) for arm in arms if ablates(arm)]


def _evicting(study: Study) -> list[str]:
    return list(dict.fromkeys(arm for _, _, budget, arm, _ in study.lock["grid"] if budget != "full"))


def _policies(lock: Mapping[str, Any], judged: Mapping[str, Any]) -> dict[str, str]:
    """Return the policy name of each arm; for a swept subject, the winner's."""
    content = lock["protocol"]["content"]
    named = {arm: runs(one) for arm, one in content["arms"].items()}
    if "selected" in judged:
        named[content["decision"]["subject"]] = judged["selected"]["policy"]
    return named


def _settings(lock: Mapping[str, Any], judged: Mapping[str, Any]) -> dict[str, Mapping[str, str]] | None:
    """Return the settings of each arm's policy; None if the lock does not have them."""
    if "policies" not in lock:
        return None
    held = dict(lock["policies"])
    if "selected" in judged:
        held[lock["protocol"]["content"]["decision"]["subject"]] = held[judged["selected"]["arm"]]
    return held


def _cell(
    claim: Claim,
    pairing: Pairing,
    arms: Arms,
    lock: Mapping[str, Any],
    index: int,
    levels: Levels,
    open_lanes: set[tuple[str, ...]],
) -> Cell:
    """Judge a claim in one cell, with the draws and the memory charge of a contrast of the verdict."""
    place, decision = (pairing.model, pairing.task, pairing.budget), lock["protocol"]["content"]["decision"]
    n = len(pairing.own)
    if len(pairing.memory()[0]) < 2 or pairing.units < 2:
        return Cell(*place, n, None, UNDECIDED, None, "too few problems")
    difference = pairing.difference
    # These contrasts are not part of the rule's family.
    (times, seed), method = draws(decision), decision["method"]

    def rng() -> np.random.Generator:
        return np.random.default_rng([seed, index])

    held = memory.held(pairing, arms, decision, lock["items"][pairing.task]["confirm"])
    null = equal_memory.null(float(difference.mean()), held.points)
    of, level = (difference, pairing.clusters), 1 - levels.contrast
    (measured,) = resampled_units.compare_at(method, *of, [level], draws=times, rng=rng, null=null or 0.0)
    interval = equal_memory.widened(measured, held.points)
    p = interval.p if null is not None else 1.0
    if claim.margin is not None:
        one_sided = method if method in equivalence.METHODS else "t"
        equivalent = resampled_units.margins(
            *of,
            claim.margin,
            held.points,
            alpha=levels.claim,
            method=one_sided,
            draws=times,
            rng=rng(),
        )
        p = max(equivalent.p_worse, equivalent.p_better)
    # The sign is that of the exact sum over lanes.
    ahead = {"worse": -1, "same": 0, "better": 1}[claim.says]
    p_claim = p if ahead == np.sign(np.round(difference.sum(), 9)) * abs(ahead) else 1.0
    cache = held.matched
    corrected = min(1.0, float(decision["alpha"]) / levels.contrast * p)
    effect = Effect(*interval[:3], p, corrected, p_claim, cache.ratio, cache.matched)
    other = FULL if pairing.full else pairing.budget
    if {(*place, claim.arm), (*place[:2], other, claim.parent)} & open_lanes:
        return Cell(*place, n, effect, UNDECIDED, None, UNGRADED)
    if not cache.matched:
        return Cell(*place, n, effect, UNDECIDED, None, UNSAVED if pairing.full else UNMATCHED)
    says = outcome(claim, p_claim, levels.claim, interval)
    if says != UNDECIDED:
        return Cell(*place, n, effect, says, None, "")
    units, scale = resampled_units.units(*of)
    spread = scale * float(problem_means(units).std(ddof=1))
    toward = abs(interval.mean) < claim.margin if claim.margin else ahead * interval.mean > 0
    needs = needed(interval.mean, spread, levels.claim if toward else levels.contrast, claim.margin)
    return Cell(*place, n, effect, says, needs, "" if needs else "no difference to plan with")


def _row(
    claim: Claim, cells: Sequence[Cell], settings: Mapping[str, Mapping[str, str]] | None, *, full: bool
) -> dict[str, Any]:
    """Return the row of a claim. full: the parent is the full cache and has no settings to compare."""
    if not cells:
        raise ValueError(f"claims.{claim.name}: no cell was compared; every cell of none would support it")
    outcomes = {cell.outcome for cell in cells}
    whole = CONTRADICTED if CONTRADICTED in outcomes else UNDECIDED if UNDECIDED in outcomes else SUPPORTED
    undecided = [cell for cell in cells if cell.outcome == UNDECIDED]
    why = next((cell.why for cell in undecided if cell.why), "")
    needs = max((cell.needs for cell in undecided if cell.needs is not None), default=None)
    if whole != UNDECIDED or why:
        needs = None
    structure = None
    if settings is not None and not full:
        paths = differing(settings[claim.arm], settings[claim.parent])
        structure = {path: {"parent": old, "arm": new} for path, (old, new) in paths.items()}
    p = max(1.0 if cell.effect is None or _open(cell) else cell.effect.p_claim for cell in cells)
    about = {"outcome": whole, "p": p, "needs": needs, "why": why if whole == UNDECIDED else ""}
    against = {"against_full": True} if full else {}
    return claim._asdict() | against | {"structure": structure} | about | {"cells": list(cells)}


def _open(cell: Cell) -> bool:
    """Return whether lanes, memory or the gate leave the cell undecided, whatever its p."""
    return cell.why in (UNGRADED, UNMATCHED, UNSAVED, UNABLE)


def _text(found: Mapping[str, Any]) -> list[str]:
    lines = [found["title"], f"verdict: {found['said']}"]
    claims, others = found["claims"], ", ".join(found["others"])
    arm = "arm" if (full := any(map(_against_full, claims))) else "ablation"
    if not claims:
        lines += ["", "No arm of this study is an ablation of its subject."]
        return lines + told.paragraph(f"Other policies: {others}")
    if found["claims_are"] == "registered":
        lines.append(f"Claims registered about these {arm}s, outside the rule.")
    else:
        lines.append(
            "No claim was registered. Implied: every part helps, each ablation is worse. Exploratory."
        )
    lines += told.paragraph(
        f"{found['family']} contrasts, {arm} minus parent in points of accuracy; {found['method']}, "
        f"intervals and p by Bonferroni (level {found['corrected_alpha']}). A claim needs p at most "
        f"{found['claim_alpha']} in each of its cells: alpha over {len(claims)} claims."
    )
    if full:
        lines += told.paragraph(
            "Against the full cache memory is unequal on purpose and charged for nothing; a cell whose arm "
            "does not hold less is undecided."
        )
    if (fewest := min(cell["n"] for claim in claims for cell in claim["cells"])) < CONFIRMATORY:
        lines += told.paragraph(
            f"Screening: with {fewest} problems nothing here is settled; fewer than {CONFIRMATORY} screen."
        )
    ablations = [claim for claim in claims if not _against_full(claim)]
    lines += [""] if ablations else []
    if ablations and found["structure"] == NOT_HELD:
        lines += told.paragraph(
            f"Structure: {NOT_HELD}; these arms are taken for ablations by the names of their policies."
        )
    else:
        lines += [line for claim in ablations for line in _structure(claim)]
    table = [_cells(claim, cell) for claim in claims for cell in claim["cells"]]
    head = ("model", "task", "budget", "n", "points", "interval", "p", "memory", "claim")
    lines += ["", *told.columns((arm, "against" if full else "of", *head), table), ""]
    for claim in claims:
        margin = f" within {100 * float(claim['margin']):g}" if claim["margin"] else ""
        what = f"{claim['arm']} is {WORDS[claim['says']]} {_parent(claim)}{margin}"
        p, holm = (_p(float(claim[name])) for name in ("p_bonferroni", "p_holm"))
        lines.append(f"{what}: {_decided(claim)}, p {p} by Bonferroni over the claims, {holm} by Holm")
    lines += ["", f"{'No claim' if full else 'Not ablations, no claim'}: {others}"] if others else []
    return lines


WORDS = {"worse": "worse than", "same": "the same as", "better": "better than"}


def _structure(claim: Mapping[str, Any]) -> list[str]:
    if not claim["structure"]:
        return [f"{claim['arm']}: does not differ from {claim['parent']}"]
    changed = (f"{path}: {one['parent']} -> {one['arm']}" for path, one in claim["structure"].items())
    return told.paragraph(f"{claim['arm']} against {claim['parent']}: " + "; ".join(changed))


def _cells(claim: Mapping[str, Any], cell: Mapping[str, Any]) -> tuple[str, ...]:
    place = (claim["arm"], _parent(claim), cell["model"], cell["task"], cell["budget"], str(cell["n"]))
    effect = cell["effect"]
    if effect is None:
        return (*place, "", "", "", "", _decided(cell))
    difference, low, high = (points(float(effect[name])) for name in ("difference", "low", "high"))
    unfair = " not less" if _against_full(claim) else " unmatched"
    memory = f"{float(effect['cache_ratio']):.3f}" + ("" if effect["matched"] else unfair)
    interval = f"[{low}, {high}]"
    return (*place, difference, interval, _p(float(effect["p_corrected"])), memory, _decided(cell))


def _against_full(claim: Mapping[str, Any]) -> bool:
    return "against_full" in claim


def _parent(claim: Mapping[str, Any]) -> str:
    return "the full cache" if _against_full(claim) else str(claim["parent"])


def _p(p: float) -> str:
    return "<0.0001" if p < 0.0001 else f"{p:.4f}"


def _decided(one: Mapping[str, Any]) -> str:
    if one["needs"] is not None:
        return f"{one['outcome']} (needs n = {one['needs']:,})"
    return f"{one['outcome']} ({one['why']})" if one["why"] else str(one["outcome"])


def main(argv: Sequence[str] | None = None) -> int:
    path = {"folder": "a confirmed registration, e.g. registrations/crystal-ablations"}
    return command("ablations", __doc__, path, audit, UNREADABLE, argv, text=_text)


if __name__ == "__main__":
    sys.exit(main())
