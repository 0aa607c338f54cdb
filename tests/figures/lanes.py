"""Lanes of a small study, in the form of `analysis.judgement.study_files.read_study`."""

import math
from typing import Any

import pandas as pd

PLACE = {"model": "tiny", "task": "needle-512", "budget": "0.5"}


def lanes(arm: str, correct: dict[str, Any], **place: Any) -> list[dict[str, Any]]:
    """correct: by problem, the grade of its seeds (one value, or a list; None where there is no grade)."""
    rows = []
    for problem, grades in correct.items():
        for seed, grade in enumerate(grades if isinstance(grades, list) else [grades]):
            value = math.nan if grade is None else float(grade)
            rows.append(PLACE | place | {"arm": arm, "seed": seed, "problem": problem, "correct": value})
    return rows


def table(*arms: list[dict[str, Any]]) -> pd.DataFrame:
    return pd.DataFrame([row for rows in arms for row in rows])
