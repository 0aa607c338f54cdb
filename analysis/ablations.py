"""What each ablation of a finished study shows about the part that it takes away.

    python -m analysis.ablations registrations/crystal-ablations
    python -m analysis.ablations registrations/crystal-ablations --json

For each ablation: the settings in which it differs from its parent, as locked; its accuracy minus the
parent's with an interval and p corrected for all contrasts shown; whether both held the same memory; and, of
the claim about it, supported, contradicted or undecided. Claims are those of the protocol's [claims]. Without
any it is implied that every part helps, so that an ablation is worse than its parent. All of it stands
outside the registered rule and decides nothing; what is implied is exploratory.

A claim is supported when every cell (model, task, budget) supports it and contradicted when one contradicts
it. "needs n" is the number of problems at which a cell would be decided, either way, with 80 % power, were
the difference and its spread between problems those measured: a guess where few problems differ.

Exit status: 0 printed, whatever the outcomes; 2 no verdict yet, or the folder cannot be read.
"""

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize, stats

from analysis.output import told
from analysis.output.command import UNREADABLE, command
from analysis.output.told import points
from analysis.stats import equivalence, isocache, multiplicity
from analysis.stats.comparison import Comparison, Margins
from analysis.stats.interval import problem_means
from analysis.stats.methods import draws
from analysis.stats.paired_tests import COMPARE
from analysis.studies.contrasts import Pairing, counted, pairings, verdict
from analysis.studies.study_files import RecordError, Study, read

__all__ = ["SAYS", "Claim", "audit", "differing", "needed", "outcome"]

SAYS = ("worse", "same", "better")
SUPPORTED, CONTRADICTED, UNDECIDED = "supported", "contradicted", "undecided"
POWER = 0.8
NOT_HELD = "the lock of this study does not hold it"


class Claim(NamedTuple):
    """The arm is worse than, the same as (within the margin) or better than its parent, in every cell."""

    name: str
    arm: str
    parent: str
    says: str
    margin: float | None  # accuracy points; of "same" alone


class Effect(NamedTuple):
    """Arm minus parent, in accuracy points."""

    difference: float
    low: float  # simultaneous: at the Bonferroni level of the family
    high: float
    p: float  # two-sided; of "same", that of a difference of the margin or more
    p_corrected: float  # Bonferroni
    cache_ratio: float
    matched: bool


class Cell(NamedTuple):
    """What one model, task and budget says of a claim."""

    model: str
    task: str
    budget: str
    n: int
    effect: Effect | None  # None for fewer than two problems that were measured
    outcome: str
    needs: int | None  # problems, of an undecided cell
    why: str  # there is no such number; else empty


def audit(folder: Path) -> dict[str, Any]:
    """What is printed of FOLDER. Raises RecordError without a verdict or for records that cannot be read."""
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
    rows = []
    for place, claim in enumerate(claims):
        indices = range(place, len(found), len(claims))
        cells = [_cell(claim, found[index], decision, index, len(found), open_lanes) for index in indices]
        rows.append(_row(claim, cells, settings))
    arms = {decision["subject"], *(arm for claim in claims for arm in (claim.arm, claim.parent))}
    return {
        "name": study.lock["name"],
        "title": content["title"],
        "verdict": judged["verdict"],
        "claims_are": "registered" if "claims" in content else "implied",
        "structure": "locked" if settings is not None else NOT_HELD,
        "method": decision["method"],
        "family": len(found),
        "corrected_alpha": float(decision["alpha"]) / max(1, len(found)),
        "claims": rows,
        "others": [arm for arm in _evicting(study) if arm not in arms],
    }


def differing(arm: Mapping[str, str], parent: Mapping[str, str]) -> dict[str, tuple[str | None, str | None]]:
    """The topmost settings in which two policies differ: {path: (in the parent, in the arm)}.

    arm, parent: the text of each setting by its path, e.g. {"selection": "policies.selection.Diverse()",
    "selection.weight": "0.5"}. A part is its class and "()". None where one of them has no such setting.
    """
    found: dict[str, tuple[str | None, str | None]] = {}
    for path in sorted(arm.keys() | parent.keys()):  # a part before what is in it
        above = any(path.startswith(f"{other}.") for other in found)
        if arm.get(path) != parent.get(path) and not above:
            found[path] = _spoken(parent, path), _spoken(arm, path)
    return found


def outcome(claim: Claim, interval: Comparison, equivalent: Margins | None) -> str:
    """interval: of arm minus parent, two-sided at the corrected level; equivalent: both one-sided tests of
    the margin at that level, for "same".
    """
    down, up = interval.high < 0, interval.low > 0
    if claim.says == "same":
        assert equivalent is not None
        assert claim.margin is not None
        within = -claim.margin < equivalent.low and equivalent.high < claim.margin
        beyond = interval.low > claim.margin or interval.high < -claim.margin
    else:
        within, beyond = (down, up) if claim.says == "worse" else (up, down)
    return SUPPORTED if within else CONTRADICTED if beyond else UNDECIDED


def needed(mean: float, spread: float, level: float, margin: float | None = None) -> int | None:
    """Problems at which a paired difference would be decided at `level` with 80 % power.

    mean, spread: of the problems' differences, the spread with n - 1. margin: None to tell the difference
    from zero, two-sided; else to show that it lies within the margin (both one-sided tests) or, where the
    measured one does not, beyond it. Normal approximation, sound for a result above thirty.

    None where no number would do: no difference, one on the margin itself, or no spread to plan with. Where
    all problems agree, as many as bound the share of others by the margin.
    """
    if spread == 0:
        if margin is None or mean != 0:
            return None
        return math.ceil(math.log(level) / math.log1p(-margin))
    away = abs(mean) - (margin or 0)
    if round(away, 12) == 0:
        return None
    sure = float(stats.norm.isf(level / 2 if away > 0 else level))
    sizes = [float((sure + stats.norm.ppf(power)) * spread / away) ** 2 for power in (POWER, (1 + POWER) / 2)]
    if away > 0:
        return math.ceil(sizes[0])
    assert margin is not None

    def short(n: float) -> float:
        """Of the power, by which both tests of the margin fall short of it at n problems."""
        error = spread / math.sqrt(n)
        each = (stats.norm.cdf((margin + side * mean) / error - sure) for side in (-1, 1))
        return POWER + 1 - float(sum(each))

    # One margin near and the other far: one test decides. Both as near: each has half of the misses.
    return math.ceil(float(optimize.brentq(short, sizes[0] * 0.99, sizes[1] * 1.01)))


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
    """Of every arm that differs from the subject in one component it is implied that it is worse. Where the
    lock does not hold the structure, of every arm whose policy has the subject's name and more, or less.
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
    """The policy of each arm; of a swept subject, the winner's."""
    content = lock["protocol"]["content"]
    named = {arm: one["policy"] for arm, one in content["arms"].items()}
    if "selected" in judged:
        named[content["decision"]["subject"]] = judged["selected"]["policy"]
    return named


def _settings(lock: Mapping[str, Any], judged: Mapping[str, Any]) -> dict[str, Mapping[str, str]] | None:
    """The settings of each arm's policy, None where the lock does not hold them."""
    if "policies" not in lock:
        return None
    held = dict(lock["policies"])
    if "selected" in judged:
        held[lock["protocol"]["content"]["decision"]["subject"]] = held[judged["selected"]["arm"]]
    return held


def _cell(
    claim: Claim,
    pairing: Pairing,
    decision: Mapping[str, Any],
    index: int,
    family: int,
    open_lanes: set[tuple[str, ...]],
) -> Cell:
    """Draws the stream of (decision.seed, index), as a contrast of the verdict does."""
    place = pairing.model, pairing.task, pairing.budget
    memory, n = pairing.memory(), len(pairing.own)
    if len(memory[0]) < 2:
        return Cell(*place, n, None, UNDECIDED, None, "too few problems")
    difference = pairing.own - pairing.other
    # These contrasts are another family than that of the rule, and corrected by Bonferroni.
    (times, seed), method = draws(decision), decision["method"]
    level = multiplicity.corrected(float(decision["alpha"]), family)

    def rng() -> np.random.Generator:
        return np.random.default_rng([seed, index])

    interval = COMPARE[method](difference, level=1 - level, draws=times, rng=rng())
    equivalent, p = None, interval.p
    if claim.margin is not None:
        one_sided = method if method in equivalence.METHODS else "t"
        equivalent = equivalence.margins(
            difference, claim.margin, alpha=level, method=one_sided, draws=times, rng=rng()
        )
        p = max(equivalent.p_worse, equivalent.p_better)
    cache = isocache.matched(*memory, tolerance=float(decision["cache_tolerance"]))
    corrected = min(1.0, family * p)
    effect = Effect(interval.mean, interval.low, interval.high, p, corrected, cache.ratio, cache.matched)
    if any((*place, arm) in open_lanes for arm in (claim.arm, claim.parent)):
        return Cell(*place, n, effect, UNDECIDED, None, "lanes without a grade")
    if not cache.matched:
        return Cell(*place, n, effect, UNDECIDED, None, "memory did not match")
    says = outcome(claim, interval, equivalent)
    if says != UNDECIDED:
        return Cell(*place, n, effect, says, None, "")
    spread = float(problem_means(difference).std(ddof=1))
    needs = needed(interval.mean, spread, level, claim.margin)
    return Cell(*place, n, effect, says, needs, "" if needs else "no difference to plan with")


def _row(
    claim: Claim, cells: Sequence[Cell], settings: Mapping[str, Mapping[str, str]] | None
) -> dict[str, Any]:
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
    if settings is not None:
        paths = differing(settings[claim.arm], settings[claim.parent])
        structure = {path: {"parent": old, "arm": new} for path, (old, new) in paths.items()}
    about = {"outcome": whole, "needs": needs, "why": why if whole == UNDECIDED else ""}
    return claim._asdict() | {"structure": structure} | about | {"cells": list(cells)}


def _spoken(settings: Mapping[str, str], path: str) -> str | None:
    """A setting with what is in it: Diverse(weight=0.5)."""
    if path not in settings:
        return None
    value, inner = settings[path], f"{path}."
    if not value.endswith("()"):
        return value
    names = [one.removeprefix(inner) for one in settings if one.startswith(inner)]
    parts = (f"{name}={_spoken(settings, inner + name)}" for name in names if "." not in name)
    return f"{value.removesuffix('()').rpartition('.')[2]}({', '.join(parts)})"


def _text(found: Mapping[str, Any]) -> list[str]:
    lines = [found["title"], f"verdict of the registered rule: {found['verdict']}"]
    claims, others = found["claims"], ", ".join(found["others"])
    if not claims:
        lines += ["", "No arm of this study is an ablation of its subject."]
        return lines + told.paragraph(f"Other policies: {others}")
    if found["claims_are"] == "registered":
        lines.append("Claims registered about these ablations, outside the rule.")
    else:
        lines.append(
            "No claim was registered. Implied: every part helps, each ablation is worse. Exploratory."
        )
    lines += told.paragraph(
        f"{found['family']} contrasts, ablation minus parent in points of accuracy; {found['method']}, "
        f"intervals and p by Bonferroni (level {found['corrected_alpha']})."
    )
    lines.append("")
    if found["structure"] == NOT_HELD:
        lines += told.paragraph(
            f"Structure: {NOT_HELD}; these arms are taken for ablations by the names of their policies."
        )
    else:
        lines += [line for claim in claims for line in _structure(claim)]
    table = [_cells(claim, cell) for claim in claims for cell in claim["cells"]]
    head = ("ablation", "of", "model", "task", "budget", "n", "points", "interval", "p", "memory", "claim")
    lines += ["", *told.columns(head, table), ""]
    for claim in claims:
        margin = f" within {100 * float(claim['margin']):g}" if claim["margin"] else ""
        what = f"{claim['arm']} is {WORDS[claim['says']]} {claim['parent']}{margin}"
        lines.append(f"{what}: {_decided(claim)}")
    lines += ["", f"Not ablations, no claim: {others}"] if others else []
    return lines


WORDS = {"worse": "worse than", "same": "the same as", "better": "better than"}


def _structure(claim: Mapping[str, Any]) -> list[str]:
    if not claim["structure"]:
        return [f"{claim['arm']}: does not differ from {claim['parent']}"]
    changed = (f"{path}: {one['parent']} -> {one['arm']}" for path, one in claim["structure"].items())
    return told.paragraph(f"{claim['arm']} against {claim['parent']}: " + "; ".join(changed))


def _cells(claim: Mapping[str, Any], cell: Mapping[str, Any]) -> tuple[str, ...]:
    place = (claim["arm"], claim["parent"], cell["model"], cell["task"], cell["budget"], str(cell["n"]))
    effect = cell["effect"]
    if effect is None:
        return (*place, "", "", "", "", _decided(cell))
    difference, low, high = (points(float(effect[name])) for name in ("difference", "low", "high"))
    p = float(effect["p_corrected"])
    memory = f"{float(effect['cache_ratio']):.3f}" + ("" if effect["matched"] else " unmatched")
    interval = f"[{low}, {high}]"
    return (*place, difference, interval, "<0.0001" if p < 0.0001 else f"{p:.4f}", memory, _decided(cell))


def _decided(one: Mapping[str, Any]) -> str:
    if one["needs"] is not None:
        return f"{one['outcome']} (needs n = {one['needs']:,})"
    return f"{one['outcome']} ({one['why']})" if one["why"] else str(one["outcome"])


def main(argv: Sequence[str] | None = None) -> int:
    path = {"folder": "a confirmed registration, e.g. registrations/crystal-ablations"}
    return command("analysis.ablations", __doc__, path, audit, UNREADABLE, argv, text=_text)


if __name__ == "__main__":
    sys.exit(main())
