"""A comparison of result files as a value: its contrasts, its arms, and the label that nothing was
registered.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas as pd

from analysis.output.told import columns, paragraph, points
from analysis.results import contrasts, pairs
from analysis.results.rows import ResultError, Row
from analysis.results.tables import number

__all__ = ["LABEL", "Comparison", "compare", "of_frame", "text"]

COLUMNS = "id", "arm", "score", "task", "seed", "cluster"  # columns of a frame
LABEL = "exploratory: nothing was registered"
FEW = 40  # effective clusters below which intervals cover less often than their level
SCREENED = 200  # problems below which a registered study only screens


class Comparison(NamedTuple):
    """notes: what was left out, and what could not be checked. alpha: of the whole family."""

    label: str
    method: str
    alpha: float
    every: list[contrasts.Contrast]
    of: list[pairs.Arm]
    said: list[str]

    @property
    def contrasts(self) -> pd.DataFrame:
        """One row for each contrast; `contrasts.Contrast` documents the columns."""
        return pd.DataFrame(self.every, columns=contrasts.Contrast._fields)

    @property
    def arms(self) -> pd.DataFrame:
        """One row for each arm in a task."""
        return pd.DataFrame(self.of, columns=pairs.Arm._fields)

    def __repr__(self) -> str:
        return "\n".join(text(self))

    def data(self) -> dict[str, Any]:
        """Return the JSON values."""
        tables = {"contrasts": self.every, "arms": self.of}
        return {"label": self.label, "method": self.method, "alpha": self.alpha, "said": self.said} | tables


def compare(
    rows: Sequence[Row],
    *,
    subject: str | None = None,
    method: str | None = None,
    alpha: float = 0.05,
    draws: int = 10_000,
    seed: int = 0,
    common: bool = False,
    prompts_differ: bool = False,
    said: Sequence[str] = (),
) -> Comparison:
    """Compare the subject, by default the first arm, with every other arm in every task.

    Raises ResultError for rows that cannot be paired or compared: see `pairs.pair_arms` and
    `contrasts.compare_pairs`.
    """
    found = pairs.paired(rows, subject, common=common, prompts=prompts_differ)
    done = contrasts.compared(found.pairs, method, alpha=alpha, draws=draws, seed=seed)
    return Comparison(
        label=LABEL,
        method=done.method,
        alpha=alpha,
        every=done.contrasts,
        of=found.arms,
        said=[*said, *found.said, _corrected(len(found.pairs))],
    )


def _corrected(family: int) -> str:
    what = "one contrast and nothing else" if family == 1 else f"these {family} contrasts and nothing else"
    return (
        f"p and intervals are corrected for {what}: not for what else was compared, or chosen by its result"
    )


def of_frame(frame: pd.DataFrame, **options: Any) -> Comparison:
    """Compare the arms of a data frame with the columns id, arm and score, and optionally task, seed and
    cluster.

    Raises ResultError, with the row, for what `csv_tables.read_table` would refuse in a CSV file.
    """
    if not isinstance(frame, pd.DataFrame):
        raise ResultError(f"frame: is no pandas.DataFrame but {type(frame).__name__}; pass id, arm and score")
    if not frame.columns.is_unique:
        raise ResultError("frame: two columns have one name; rename one")
    for name in ("id", "arm", "score"):
        if name not in frame:
            raise ResultError(f"frame: {name}: is no column; there are {', '.join(map(str, frame))}")
    rows = []
    for place, row in enumerate(frame.to_dict("records")):
        where = f"frame: row {place}"
        given = {str(name): "" if pd.isna(row[name]) else str(row[name]) for name in COLUMNS if name in row}
        for name in ("id", "arm"):
            if not given[name]:
                raise ResultError(f"{where}: {name}: is missing; every row has one")
        rows.append(
            Row(
                arm=given["arm"],
                task=given.get("task", ""),
                id=given["id"],
                seed=given.get("seed", "") or "0",
                score=number(given["score"], "score", where),
                cluster=given.get("cluster") or None,
                question=None,
                prompt=None,
                where=where,
            )
        )
    return compare(rows, **options)


def text(found: Comparison) -> list[str]:
    """Format a comparison as lines for people; the first line is the label."""
    head = [
        "task",
        "contrast",
        "n",
        "pp",
        "95 % interval",
        "simultaneous",
        "p",
        "Holm",
        "max-t",
        "detectable",
    ]
    lines = [found.label, ""]
    of = ["task", "arm", "problems", "seeds", "mean score, %", "without a score"]
    lines += columns(of, [_arm(one) for one in found.of])
    lines += ["", *columns(head, [_row(one) for one in found.every]), ""]
    family = len(found.every)
    for sentence in [
        f"Method: {found.method}. Differences are the first arm minus the second, in percentage points.",
        f"Simultaneous: together at {100 * (1 - found.alpha):g} %. "
        "detectable: the smallest true difference that so many problems with this spread find with a power "
        f"of 80 % at {found.alpha:g}/{family}.",
        *_warnings(found.every),
        *found.said,
    ]:
        lines += paragraph(sentence)
    return lines


def _warnings(every: Sequence[contrasts.Contrast]) -> list[str]:
    few = min(one.n if one.clusters is None else one.clusters for one in every)
    weigh = min(one.n if one.effective_clusters is None else one.effective_clusters for one in every)
    least = min(few, weigh)
    if least >= SCREENED:
        return []
    alike = "" if weigh >= few else f" that weigh as {weigh} of one size"
    said = [
        f"The smallest contrast has {few} problems or clusters{alike}; below {SCREENED} it screens, no more."
    ]
    if any(one.effective_clusters is not None and one.effective_clusters < FEW for one in every):
        said.append(
            f"Of fewer than {FEW} clusters, or of uneven ones, a 95 % interval holds in 85 to 96 % of "
            "studies (docs/decisions/scores-and-clusters.md)."
        )
    return said


def _arm(one: pairs.Arm) -> list[str]:
    mean = "-" if pd.isna(one.score) else f"{100 * one.score:.1f}"
    return [_flat(one.task) or "-", _flat(one.arm), str(one.problems), str(one.seeds), mean, str(one.missing)]


def _row(one: contrasts.Contrast) -> list[str]:
    n = str(one.n) if one.clusters is None else f"{one.n} in {one.clusters} clusters"
    if one.clusters is not None and one.clusters != one.effective_clusters:
        n += f", as {one.effective_clusters}"
    return [
        _flat(one.task) or "-",
        _flat(f"{one.subject} - {one.against}"),
        n,
        points(one.difference),
        f"{points(one.low)} to {points(one.high)}",
        f"{points(one.low_simultaneous)} to {points(one.high_simultaneous)}",
        *(_p(value) for value in (one.p, one.p_holm, one.p_max_t)),
        "-" if pd.isna(one.detectable) else "none" if one.detectable > 1 else f"{100 * one.detectable:.1f}",
    ]


def _flat(name: str) -> str:
    """Return a name on one line, whatever white space it contains."""
    return " ".join(name.split())


def _p(value: float) -> str:
    return "<.0001" if value < 1e-4 else f"{value:.4f}".lstrip("0") if value < 1 else "1"
