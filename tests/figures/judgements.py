"""Judgements written by hand, in the form in which `figures.drawing.page.read_judged` reads verdict.json."""

import json
from pathlib import Path
from typing import Any

# against: difference, nominal ends, simultaneous ends, p, better, worse, matched
FIVE: dict[str, tuple[Any, ...]] = {
    "snapkv": ("0.125000", "0.041667", "0.208333", "0.016667", "0.233333", "0.000120", True, False, True),
    "h2o": ("0.010417", "-0.020833", "0.041667", "-0.052083", "0.072917", "0.512000", False, False, True),
    "random": ("0.100000", "0.020000", "0.180000", "0.001000", "0.199000", "0.000010", True, False, False),
    "lacache": ("-0.093750", "-0.145833", "-0.041667", "-0.900000", "0.800000", "0.001", False, True, True),
    "streaming": (None,) * 6 + (False, False, False),
}
NAMES = ("difference", "low", "high", "low_simultaneous", "high_simultaneous", "p", "better", "worse", "matched")


def contrast(against: str, *values: Any, **place: Any) -> dict[str, Any]:
    row = {"model": "tiny", "task": "needle-512", "budget": "0.5", "subject": "crystal", "against": against}
    row |= {"n": 96, "seeds": 1, "gains": 12, "losses": 1} | dict(zip(NAMES, values, strict=True))
    ratio = None if row["difference"] is None else "1.003906" if row["matched"] else "1.250000"
    other = dict.fromkeys(("p_bootstrap", "p_t", "p_sign_flip", "p_holm"), row["p"])
    return row | other | {"cache_ratio": ratio, "cache_worst": ratio} | place


def arm(name: str, **values: Any) -> dict[str, Any]:
    row = {"model": "tiny", "task": "needle-512", "budget": "full" if name == "full" else "0.5", "arm": name}
    row |= {"n": 96, "accuracy": "0.812500", "mean_slots": "256.125000", "peak_slots": "262.000000"}
    row |= {"mean_bytes": "1000.000000", "mean_tokens": "7.104167", "no_answer": 2, "truncated": 1, "failed": 0}
    return row | values


def judgement(contrasts: list[dict[str, Any]] | None = None, **changes: Any) -> dict[str, Any]:
    rows = [contrast(name, *values) for name, values in FIVE.items()] if contrasts is None else contrasts
    return {
        "name": "small",
        "title": "A small study",
        "verdict": "INCONCLUSIVE",
        "label": "screening-grade",
        "rule": "superior",
        "at_least": 3,
        "branch": None,
        "method": "sign-flip",
        "family": len(rows),
        "alpha": "0.050000",
        "corrected_alpha": "0.010000",
        "contrasts": rows,
        "arms": [arm("full"), arm("crystal"), *(arm(one["against"]) for one in rows)],
        "missing": {"rule": "inconclusive", "registered": 672, "lanes": 0, "cells": []},
        "proves": [],
        "does_not_prove": ["Equality: INCONCLUSIVE says that this study could not tell."],
        "witness": "UNANCHORED",
    } | changes


def sixteen() -> dict[str, Any]:
    """Two models, two tasks, two budgets, two comparators; long names, and every kind of mark."""
    rows = []
    kinds = list(FIVE.values())
    for model in ("smollm2-135m", "smollm2-360m-instruct"):
        for task in ("needle-512", "association-1024"):
            for budget in ("0.25", "128"):
                for against in ("snapkv", "streaming"):
                    values = kinds[len(rows) % 5]
                    rows.append(contrast(against, *values, model=model, task=task, budget=budget))
    arms = [
        arm(name, model=one["model"], task=one["task"], budget=one["budget"], peak_slots="1024.000000")
        for one in rows[::2]
        for name in ("crystal", "snapkv", "streaming")
    ]
    return judgement(rows, arms=arms, corrected_alpha="0.003125")


def write(folder: Path, judged: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "verdict.json").write_text(json.dumps({"kind": "kv-prereg verdict", "judged": judged}))
    return folder
