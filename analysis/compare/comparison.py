"""A comparison of result files as a value: its contrasts, its arms, and the label that nothing was registered."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas as pd

from analysis.compare import contrasts, csv_tables, pairs
from analysis.compare.scored_answers import ReadOptions, ResultError, ScoredAnswer
from analysis.stats.methods import MIN_CONFIRMATORY
from protocol.formats.text_tables import format_columns, format_points, wrap_paragraph

COLUMNS = "id", "arm", "score", "task", "seed", "cluster", *csv_tables.QUESTION_COLUMNS  # columns of a frame
LABEL = "exploratory: nothing was registered"
FEW_CLUSTERS = 40  # effective clusters below which intervals cover less often than their level


class Comparison(NamedTuple):
    """notes: what was left out, and what could not be checked. alpha: of the whole family. margin: of equivalence, in
    points, or None.
    """

    label: str
    method: str
    alpha: float
    contrast_list: list[contrasts.Contrast]
    arm_list: list[pairs.Arm]
    notes: list[str]
    rank_list: list[contrasts.ArmRank]
    margin: float | None = None

    @property
    def contrasts(self) -> pd.DataFrame:
        """One row for each contrast; `contrasts.Contrast` documents the columns."""
        return pd.DataFrame(self.contrast_list, columns=contrasts.Contrast._fields)

    @property
    def arms(self) -> pd.DataFrame:
        """One row for each arm in a task."""
        return pd.DataFrame(self.arm_list, columns=pairs.Arm._fields)

    @property
    def ranks(self) -> pd.DataFrame:
        """One row for each arm in a task with three or more; `contrasts.ArmRank` documents the columns."""
        return pd.DataFrame(self.rank_list, columns=contrasts.ArmRank._fields)

    def __repr__(self) -> str:
        return "\n".join(format_text(self))

    def data(self) -> dict[str, Any]:
        """Return the JSON values."""
        tables = {"contrasts": self.contrast_list, "arms": self.arm_list, "ranks": self.rank_list}
        facts = {name: getattr(self, name) for name in ("label", "method", "alpha", "margin")}
        return facts | {"said": self.notes} | tables


def compare(
    rows: Sequence[ScoredAnswer],
    *,
    subject: str | None = None,
    method: str | None = None,
    alpha: float = 0.05,
    draws: int = 10_000,
    seed: int = 0,
    common: bool = False,
    prompts_differ: bool = False,
    margin: float | None = None,
    notes: Sequence[str] = (),
) -> Comparison:
    """Compare the subject, by default the first arm, with every other arm in every task.

    margin: accuracy points within which two arms count as equivalent. Raises ResultError for rows that cannot be
    paired or compared: see `pairs.pair_arms` and `contrasts.compare_pairs`.
    """
    if margin is not None and not 0 < margin < 1:
        raise ResultError(f"margin: {margin} is not a difference of scores; write a number between 0 and 1, as 0.02")
    paired = pairs.pair_arms(rows, subject, common=common, prompts=prompts_differ)
    result = contrasts.compare_pairs(paired.pairs, method, alpha=alpha, draws=draws, seed=seed)
    ranks = contrasts.rank_pairs(paired.pairs, alpha=alpha, draws=draws, seed=seed)
    within = [] if margin is None else [_equivalence_note(result.contrasts, margin)]
    unranked = _describe_unranked(paired.pairs, ranks)
    return Comparison(
        label=LABEL,
        method=result.method,
        alpha=alpha,
        contrast_list=result.contrasts,
        arm_list=paired.arms,
        notes=[*within, *notes, *paired.notes, *unranked, _correction_note(len(paired.pairs))],
        rank_list=ranks,
        margin=margin,
    )


def _correction_note(family: int) -> str:
    scope = "this one contrast" if family == 1 else f"these {family} contrasts"
    return (
        f"p and intervals are corrected for {scope} only: not for other comparisons that were made, nor "
        "for a choice made by its result"
    )


def compare_frame(frame: pd.DataFrame, **options: Any) -> Comparison:
    """Compare the arms of a data frame with the columns id, arm and score, and optionally task, seed, cluster,
    and what was asked: question, input or doc_hash.

    Raises ResultError, with the row, for what `csv_tables.read_table` would refuse in a CSV file.
    """
    if not isinstance(frame, pd.DataFrame):
        raise ResultError(
            f"frame: is a {type(frame).__name__}, not a pandas.DataFrame; pass a data frame with the columns "
            "id, arm and score"
        )
    if not frame.columns.is_unique:
        raise ResultError("frame: two columns have the same name; rename one")
    for name in ("id", "arm", "score"):
        if name not in frame:
            raise ResultError(f"frame: {name}: is not a column; the columns are {', '.join(map(str, frame))}")
    rows = []
    for index, row in enumerate(frame.to_dict("records")):
        where = f"frame: row {index}"
        cells = {name: "" if pd.isna(row[name]) else str(row[name]) for name in COLUMNS if name in row}
        known = {name: cell for name, cell in cells.items() if cell}
        for name in ("id", "arm"):
            if name not in known:
                raise ResultError(f"{where}: {name}: is missing; every row needs one")
        rows.append((where, {"score": "", **known}))
    return compare(csv_tables.read_table(iter(rows), ReadOptions()).rows, **options)


def format_text(comparison: Comparison) -> list[str]:
    """Format a comparison as lines for people; the first line is the label."""
    head = ["task", "contrast", "n", "pp", "95 % interval", "simultaneous", "p", "Holm", "max-t", "detectable"]
    lines = [comparison.label, ""]
    arm_head = ["task", "arm", "problems", "seeds", "mean score, %", "without score"]
    lines += format_columns(arm_head, [_arm_cells(item) for item in comparison.arm_list])
    lines += ["", *format_columns(head, [_contrast_cells(item) for item in comparison.contrast_list]), ""]
    if comparison.rank_list:
        rank_head = ["task", "arm", "mean score, %", "rank"]
        lines += [*format_columns(rank_head, [_rank_cells(item) for item in comparison.rank_list]), ""]
    family = len(comparison.contrast_list)
    for sentence in [
        f"Method: {comparison.method}. Differences are the first arm minus the second, in percentage points.",
        (
            "The simultaneous intervals, the max-t p values and the ranks are each valid for the whole table "
            f"at once, at {100 * (1 - comparison.alpha):g} %; with few clusters, or with scores that are "
            "mostly identical, the ranks and everything by max-t err more often. detectable: the smallest true "
            "difference that this many problems with this spread detect with a power of 80 % at "
            f"{comparison.alpha:g}/{family}."
        ),
        *_size_notes(comparison.contrast_list),
        *comparison.notes,
    ]:
        lines += wrap_paragraph(sentence)
    return lines


def _equivalence_note(compared: Sequence[contrasts.Contrast], margin: float) -> str:
    """Name the contrasts whose simultaneous interval lies within the margin: two one-sided tests, and stricter."""
    within = [
        _single_line(f"{contrast.task} {contrast.subject} - {contrast.against}".strip())
        for contrast in compared
        if -margin < contrast.low_simultaneous and contrast.high_simultaneous < margin
    ]
    names = f": {'; '.join(within)}" if within else ""
    return (
        f"Exploratory: {len(within)} of {len(compared)} contrasts are within a margin of {100 * margin:g} "
        f"percentage points{names}. None of the other differences is shown to be small. A margin that was "
        "chosen after the results were seen shows nothing."
    )


def _describe_unranked(compared: Sequence[pairs.Pair], ranks: Sequence[contrasts.ArmRank]) -> list[str]:
    """Name the arms of ranked tasks that have no rank: those that were compared on other problems."""
    notes = []
    for task in dict.fromkeys(rank.task for rank in ranks):
        ranked = {rank.arm for rank in ranks if rank.task == task}
        if absent := [pair.against for pair in compared if pair.task == task and pair.against not in ranked]:
            scope = f"{task}: " if task else ""
            notes.append(f"{scope}{', '.join(absent)}: not ranked among the others, because the problems differ")
    return notes


def _size_notes(all_contrasts: Sequence[contrasts.Contrast]) -> list[str]:
    fewest = min(contrast.n if contrast.clusters is None else contrast.clusters for contrast in all_contrasts)
    effective = min(
        contrast.n if contrast.effective_clusters is None else contrast.effective_clusters for contrast in all_contrasts
    )
    least = min(fewest, effective)
    if least >= MIN_CONFIRMATORY:
        return []
    remark = "" if effective >= fewest else f" that count as {effective} of equal size"
    notes = [
        (
            f"The smallest contrast has {fewest} problems or clusters{remark}; fewer than {MIN_CONFIRMATORY} are a "
            "screening only."
        )
    ]
    if any(
        contrast.effective_clusters is not None and contrast.effective_clusters < FEW_CLUSTERS
        for contrast in all_contrasts
    ):
        notes.append(
            f"With fewer than {FEW_CLUSTERS} clusters, or with clusters of uneven size, a 95 % interval "
            "covers the true value in only 85 to 96 % of studies "
            "(docs/decisions/42-scores-and-clusters.md)."
        )
    return notes


def _arm_cells(arm: pairs.Arm) -> list[str]:
    mean = "-" if pd.isna(arm.score) else f"{100 * arm.score:.1f}"
    return [
        _single_line(arm.task) or "-",
        _single_line(arm.arm),
        str(arm.problems),
        str(arm.seeds),
        mean,
        str(arm.missing),
    ]


def _rank_cells(item: contrasts.ArmRank) -> list[str]:
    place = str(item.first) if item.first == item.last else f"{item.first} to {item.last}"
    return [_single_line(item.task) or "-", _single_line(item.arm), f"{100 * item.score:.1f}", place]


def _contrast_cells(contrast: contrasts.Contrast) -> list[str]:
    n = str(contrast.n) if contrast.clusters is None else f"{contrast.n} in {contrast.clusters} clusters"
    if contrast.clusters is not None and contrast.clusters != contrast.effective_clusters:
        n += f", counting as {contrast.effective_clusters}"
    return [
        _single_line(contrast.task) or "-",
        _single_line(f"{contrast.subject} - {contrast.against}"),
        n,
        format_points(contrast.difference),
        f"{format_points(contrast.low)} to {format_points(contrast.high)}",
        f"{format_points(contrast.low_simultaneous)} to {format_points(contrast.high_simultaneous)}",
        *(_format_p(value) for value in (contrast.p, contrast.p_holm, contrast.p_max_t)),
        "-"
        if pd.isna(contrast.detectable)
        else "none"
        if contrast.detectable > 1
        else f"{100 * contrast.detectable:.1f}",
    ]


def _single_line(name: str) -> str:
    """Return a name on one line, whatever white space it contains."""
    return " ".join(name.split())


def _format_p(value: float) -> str:
    return "<.0001" if value < 1e-4 else f"{value:.4f}".lstrip("0") if value < 1 else "1"
