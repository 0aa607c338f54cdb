"""Agreement of the slots that each policy retains with the tokens that answers need, from registrations."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from analysis.judgement.arm_text import describe_arm, policy_name
from analysis.judgement.study_files import read_document
from protocol.instruments.anatomy.analysis import trace_statistics
from protocol.instruments.anatomy.analysis.screening import collect_answers
from protocol.instruments.anatomy.analysis.traces import Anatomy, NothingLabelled, read_anatomy

LEVEL = 0.95


class PolicyAgreement(NamedTuple):
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


def measure_policies(lock: Mapping[str, Any], anatomy: Anatomy) -> list[PolicyAgreement]:
    """Return the agreements in registered order. Raises RecordError for a side file that is missing or
    damaged.
    """
    specs, agreements = lock["protocol"]["content"]["arms"], []
    for pair in anatomy.pairs:
        answers = collect_answers(anatomy, pair)
        for row, arm in enumerate(answers.arms):
            spec = specs[arm]
            changed = describe_arm(spec) if spec.get("set") else ""
            policy = "" if "press" in spec else policy_name(spec)
            for column, budget in enumerate(answers.budgets):
                right = answers.right[:, row, column]
                if not np.isfinite(right).any():
                    continue
                auc = trace_statistics.aggregate_units(answers.auc[:, row, column][:, None], answers.clusters)
                means = trace_statistics.means(auc)
                low, high = (_finite_or_none(end[0]) for end in trace_statistics.t_limits(means, LEVEL))
                agreements.append(
                    PolicyAgreement(
                        lock["name"],
                        *pair,
                        anatomy.reading,
                        budget,
                        arm,
                        policy,
                        changed,
                        int(np.isfinite(right).sum()),
                        float(np.nanmean(answers.kept[:, row, column])),
                        float(means.mean[0]),
                        low,
                        high,
                        float(np.nanmean(right)),
                    )
                )
    return agreements


def _finite_or_none(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def read_registrations(folders: Iterable[Path]) -> list[PolicyAgreement]:
    """Return the agreements of the registrations that labelled traces."""
    agreements = []
    for folder in folders:
        try:
            agreements += measure_policies(read_document(folder / "lock.json")[1], read_anatomy(folder))
        except NothingLabelled:
            continue
    return agreements


def format_toml(rows: Iterable[PolicyAgreement]) -> str:
    """Format the agreements as the TOML file that `kv-prereg policies` reads, with numbers as they are
    printed.

    The reader knows nothing of studies.
    """
    lines = [
        "# How far what each policy kept agrees with what answers needed: written by docs/generate.py from",
        "# registrations/*/anatomy. No lock holds this file, and nothing that runs a policy reads it.",
    ]
    for agreement in rows:
        if agreement.policy:
            lines += [
                "",
                "[[agreement]]",
                *(f"{name} = {_toml_value(value)}" for name, value in _toml_fields(agreement)),
            ]
    return "\n".join(lines) + "\n"


def _toml_fields(agreement: PolicyAgreement) -> list[tuple[str, str | int]]:
    text = {name: value for name, value in agreement._asdict().items() if isinstance(value, str | int)}
    numbers = {name: f"{getattr(agreement, name):.3f}" for name in ("kept", "auc", "accuracy")}
    limits = (
        {}
        if agreement.low is None or agreement.high is None
        else {"low": f"{agreement.low:.3f}", "high": f"{agreement.high:.3f}"}
    )
    return [*text.items(), *numbers.items(), *limits.items()]


def _toml_value(value: str | int) -> str:
    """Return a TOML value. Strings use the escapes of JSON, which TOML shares."""
    return str(value) if isinstance(value, int) else json.dumps(value, ensure_ascii=False)
