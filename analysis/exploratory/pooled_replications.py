"""The contrasts of a study and of its fresh replications, pooled.

A replication cites its parent's lock and has problems of its own. A reproduction has its parent's problems, and
is never pooled. Everything here is exploratory: no rule decides on it, nobody registered how many replications
there would be, the first study chose the question, and nothing is corrected for the number of contrasts.
"""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from analysis.judgement.contrasts import Pairing, apply_missing_rule, pair_arms
from analysis.judgement.judged_folder import read_judged
from analysis.judgement.study_files import read_document, read_study
from analysis.judgement.study_table import Study
from analysis.judgement.untrusted_files import RecordError
from analysis.rules.rule import arm_pairs
from analysis.stats.clusters import cluster_values
from analysis.stats.random_effects import PooledEffect, pool_effects
from protocol.formats.escape import is_one_line

Z = 1.959964  # of a 95 % interval


class StudyEffect(NamedTuple):
    """The difference of a contrast in one study, subject minus comparator, with its standard error over problems,
    or over clusters of a task that has some, and the 95 % interval that this gives. n: problems. Without two of them
    all but n are NaN.
    """

    study: str
    n: int
    difference: float
    error: float
    low: float
    high: float


class PooledContrast(NamedTuple):
    """pooled: None where a study has fewer than two problems, or none that differ, as `reason` says. replications:
    the same without the first study, whose results chose the question; None for fewer than two.
    """

    model: str
    task: str
    budget: str
    subject: str
    against: str
    effects: tuple[StudyEffect, ...]
    pooled: PooledEffect | None
    replications: PooledEffect | None
    reason: str


class PooledStudies(NamedTuple):
    """studies: the parent, then its replications by name. Their verdicts are not repeated here."""

    studies: tuple[str, ...]
    contrasts: list[PooledContrast]


def find_replications(folder: Path) -> list[Path]:
    """Return the judged fresh replications of the study in FOLDER: those in the folder replications/ beside its own
    that cite its lock.
    """
    digest = read_document(folder / "lock.json")[0]
    found = []
    for candidate in sorted((folder.resolve().parent.parent / "replications").glob("*/lock.json")):
        parent = read_document(candidate)[1].get("parent")
        is_fresh = isinstance(parent, Mapping) and parent.get("lock") == digest and parent.get("fresh") is True
        if is_fresh and (candidate.parent / "verdict.json").exists():
            found.append(candidate.parent)
    return found


def pool_replications(folder: Path) -> PooledStudies:
    """Pool the study in FOLDER with its fresh replications. Raises RecordError without a verdict or replication, and
    for studies that share a late value or their answers: these are copies.
    """
    folder = Path(folder)
    read_judged(folder)
    folders = [folder, *find_replications(folder)]
    if len(folders) < 2:
        raise RecordError(
            f"{folder}: has no fresh replication in this project; run: kv-prereg replicate --fresh {folder}"
        )
    _refuse_shared_values(folders)
    pairings = {path.resolve().name: _pair(read_study(path)) for path in folders}
    if not all(map(is_one_line, [*pairings, *itertools.chain(*itertools.chain(*pairings.values()))])):
        raise RecordError(
            f"{folder}: the folder name of this study or of a replication, or a name in one of them, contains "
            "a line break; remove that study"
        )
    _refuse_copies(pairings)
    first, *others = pairings.values()
    contrasts = [
        _pool([pairings[name][key] for name in pairings], list(pairings))
        for key in first
        if all(key in other for other in others)
    ]
    return PooledStudies(tuple(pairings), contrasts)


def _pair(study: Study) -> dict[tuple[str, ...], Pairing]:
    """Return the pairings of a study by model, task, budget, subject and comparator."""
    decision = study.lock["protocol"]["content"]["decision"]
    return {pairing[:5]: pairing for pairing in pair_arms(apply_missing_rule(study).study, arm_pairs(decision))}


def _refuse_shared_values(folders: Sequence[Path]) -> None:
    """Raise RecordError for two studies whose claims have one late value: their problems may be the same."""
    first_with: dict[str, Path] = {}
    for folder in folders:
        randomness: Any = read_document(folder / "claim.json")[1].get("randomness")
        if not isinstance(randomness, Mapping):
            continue
        value = str(randomness.get("value"))
        if (first := first_with.setdefault(value, folder)) != folder:
            raise RecordError(
                f"{folder}: has the same late value as {first}, so that one is a copy of the other; remove the copy"
            )


def _refuse_copies(pairings: Mapping[str, Mapping[tuple[str, ...], Pairing]]) -> None:
    """Raise RecordError for two studies with the same answers throughout, unless every answer of an arm is alike."""
    first_with: dict[bytes, str] = {}
    for name, by_contrast in pairings.items():
        answers = [np.stack([p.subject_correct, p.comparator_correct]) for p in by_contrast.values()]
        if not any(np.ptp(values, axis=(1, 2)).any() for values in answers if values.size):
            continue
        content = b"".join(values.tobytes() for values in answers)
        if (first := first_with.setdefault(content, name)) != name:
            raise RecordError(
                f"{name}: has the same answers as {first} everywhere, so that one is a copy of the other; "
                "remove the copy"
            )


def _pool(pairings: Sequence[Pairing], names: Sequence[str]) -> PooledContrast:
    effects = tuple(_estimate_effect(pairing, name) for pairing, name in zip(pairings, names, strict=True))
    undefined = [effect.study for effect in effects if not effect.error > 0]
    reason = (
        f"the differences between the arms are the same on every problem of {', '.join(undefined)}" if undefined else ""
    )
    values = [(effect.difference, effect.error) for effect in effects]
    pooled = None if reason else pool_effects(*zip(*values, strict=True))
    replications = pool_effects(*zip(*values[1:], strict=True)) if pooled and len(values) > 2 else None
    return PooledContrast(*pairings[0][:5], effects, pooled, replications, reason)


def _estimate_effect(pairing: Pairing, name: str) -> StudyEffect:
    """Estimate the mean over problems of the mean over seeds."""
    differences: NDArray[np.float64] = pairing.difference.mean(axis=1)
    units = differences
    if pairing.clusters is not None and len(set(pairing.clusters)) > 1:
        units = cluster_values(differences, pairing.clusters)
    if len(units) < 2:
        return StudyEffect(name, len(differences), *4 * [float("nan")])
    mean, error = float(differences.mean()), float(units.std(ddof=1) / np.sqrt(len(units)))
    return StudyEffect(name, len(differences), mean, error, mean - Z * error, mean + Z * error)
