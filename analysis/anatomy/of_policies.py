"""Agreement of the slots that each policy retains with the tokens that answers need, from registrations."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from analysis.anatomy import over_traces
from analysis.anatomy.reading import Anatomy, NothingLabelled, read
from analysis.anatomy.screening import answers
from analysis.studies.arms import runs, words
from analysis.studies.study_files import document

__all__ = ["Agreed", "agreed", "in_registrations", "toml"]

LEVEL = 0.95


class Agreed(NamedTuple):
    """One arm at one budget of one (model, task), over the traces of both halves in which some token was
    needed and the arm did not fail.

    kept: mean share of the needed tokens that the arm retained. auc: mean over traces with varying labels, of
    the retained shares with the labels; .5 if needed tokens are retained as often as others. low, high: 95 %,
    Student over traces or clusters, None for fewer than two. accuracy: of its answers at the cut. policy:
    empty for a press; changed: the settings that the arm changes in its policy.
    """

    study: str
    model: str
    task: str
    reading: str
    budget: str
    arm: str
    policy: str
    changed: str
    traces: int
    kept: float
    auc: float
    low: float | None
    high: float | None
    accuracy: float


def agreed(lock: Mapping[str, Any], anatomy: Anatomy) -> list[Agreed]:
    """Return the agreements in registered order. Raises RecordError for a side file that is missing or
    damaged.
    """
    specs, found = lock["protocol"]["content"]["arms"], []
    for pair in anatomy.pairs:
        of = answers(anatomy, pair)
        for row, arm in enumerate(of.arms):
            spec = specs[arm]
            changed = words(spec) if spec.get("set") else ""
            policy = "" if "press" in spec else runs(spec)
            for column, budget in enumerate(of.budgets):
                right = of.right[:, row, column]
                if not np.isfinite(right).any():
                    continue
                auc = over_traces.units(of.auc[:, row, column][:, None], of.clusters)
                means = over_traces.means(auc)
                low, high = (_number(end[0]) for end in over_traces.limits(means, LEVEL))
                found.append(
                    Agreed(
                        lock["name"],
                        *pair,
                        anatomy.reading,
                        budget,
                        arm,
                        policy,
                        changed,
                        int(np.isfinite(right).sum()),
                        float(np.nanmean(of.kept[:, row, column])),
                        float(means.mean[0]),
                        low,
                        high,
                        float(np.nanmean(right)),
                    )
                )
    return found


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def in_registrations(folders: Iterable[Path]) -> list[Agreed]:
    """Return the agreements of the registrations that labelled traces."""
    found = []
    for folder in folders:
        try:
            found += agreed(document(folder / "lock.json")[1], read(folder))
        except NothingLabelled:
            continue
    return found


def toml(rows: Iterable[Agreed]) -> str:
    """Format the agreements as the TOML file that `kv-prereg policies` reads, with numbers as they are
    printed.

    The reader knows nothing of studies.
    """
    lines = [
        "# How far what each policy kept agrees with what answers needed: written by docs/generate.py from",
        "# registrations/*/anatomy. No lock holds this file, and nothing that runs a policy reads it.",
    ]
    for one in rows:
        if one.policy:
            lines += ["", "[[agreement]]", *(f"{name} = {_value(value)}" for name, value in _told(one))]
    return "\n".join(lines) + "\n"


def _told(one: Agreed) -> list[tuple[str, str | int]]:
    text = {name: value for name, value in one._asdict().items() if isinstance(value, str | int)}
    numbers = {name: f"{getattr(one, name):.3f}" for name in ("kept", "auc", "accuracy")}
    limits = (
        {} if one.low is None or one.high is None else {"low": f"{one.low:.3f}", "high": f"{one.high:.3f}"}
    )
    return [*text.items(), *numbers.items(), *limits.items()]


def _value(value: str | int) -> str:
    """Return a TOML value. Strings use the escapes of JSON, which TOML shares."""
    return str(value) if isinstance(value, int) else json.dumps(value, ensure_ascii=False)
