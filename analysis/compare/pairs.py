"""Pairs the arms of result files by problem; whatever cannot be paired is refused or counted."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from analysis.compare.scored_answers import ResultError, ScoredAnswer
from analysis.stats.ranks import rank_sum_p

MAX_IDS = 3  # ids in a refusal
WARNED = 0.05  # p below which problems that an arm lacks are said to differ from the others


class Pair(NamedTuple):
    """One subject and one comparator on the problems of a task that both have in full. Axes [problem, seed].

    clusters: of each problem, in their order; None without clusters. left_out: problems of either arm that
    are not paired. low_bound, high_bound: of the mean difference with them, whatever their missing scores are.
    """

    task: str
    subject: str
    against: str
    problems: tuple[str, ...]
    subject_scores: NDArray[np.float64]
    comparator_scores: NDArray[np.float64]
    clusters: tuple[str, ...] | None
    left_out: int
    low_bound: float
    high_bound: float


class Arm(NamedTuple):
    """An arm in a task. score: mean over its problems of the mean over their seeds with a score."""

    task: str
    arm: str
    problems: int
    seeds: int
    score: float
    missing: int  # rows without a score


class Paired(NamedTuple):
    pairs: list[Pair]
    arms: list[Arm]
    notes: list[str]


def pair_arms(
    rows: Sequence[ScoredAnswer], subject: str | None = None, *, common: bool = False, prompts: bool = False
) -> Paired:
    """Pair the subject, by default the first arm, with every other arm in every task.

    common: leave out, and count, the problems that one arm lacks, has without a score or with other seeds; by
    default they are refused. prompts: allow different prompts of the arms.

    Raises ResultError, always for a duplicate row and for one id that names two questions.
    """
    arms = list(dict.fromkeys(row.arm for row in rows))
    subject_arm = arms[0] if subject is None and arms else subject
    if subject_arm not in arms or subject_arm is None:
        raise ResultError(f"subject: {subject_arm!r} is not an arm; the arms are {', '.join(arms) or 'none'}")
    if len(arms) < 2:
        raise ResultError(f"arms: {subject_arm!r} is the only arm; name a second file, or a file with two arms")
    if len({" ".join(arm.split()) for arm in arms}) < len(arms):
        raise ResultError(
            f"arm: {', '.join(map(repr, arms))}: two names differ in spaces only; write them the same way"
        )
    tables = _group_answers(_fill_task(rows))
    comparators = [arm for arm in arms if arm != subject_arm]
    tasks = list(dict.fromkeys(task for task, _ in tables))
    paired = Paired([], [_summarise_arm(task, arm, tables[task, arm]) for task, arm in tables], [])
    for task in tasks:
        for comparator in comparators:
            if absent := [arm for arm in (subject_arm, comparator) if (task, arm) not in tables]:
                if not common:
                    raise ResultError(
                        f"task: {absent[0]} has no {task!r}; add this task, or leave it out with --common"
                    )
                paired.notes.append(f"task {task!r} is left out, because {absent[0]} does not have it")
                continue
            pair, notes = _pair_two(
                task, (subject_arm, comparator), (tables[task, subject_arm], tables[task, comparator]), common, prompts
            )
            paired.pairs.append(pair)
            paired.notes.extend(notes)
    if not paired.pairs:
        raise ResultError(f"task: {subject_arm} has no task in common with another arm; name files of the same task")
    return paired


Seeds = Mapping[str, ScoredAnswer]  # of a problem, by seed
Table = Mapping[str, Seeds]  # of an arm in a task, by problem
SeedPair = tuple[Seeds, Seeds]  # a problem of two arms


def _fill_task(rows: Sequence[ScoredAnswer]) -> Sequence[ScoredAnswer]:
    """Fill in the task of rows whose file does not name it, if all other rows have the same one."""
    tasks = {row.task for row in rows if row.task}
    return [row._replace(task=row.task or next(iter(tasks))) for row in rows] if len(tasks) == 1 else rows


def _group_answers(rows: Iterable[ScoredAnswer]) -> dict[tuple[str, str], dict[str, dict[str, ScoredAnswer]]]:
    tables: dict[tuple[str, str], dict[str, dict[str, ScoredAnswer]]] = {}
    for row in rows:
        seeds = tables.setdefault((row.task, row.arm), defaultdict(dict))[row.id]
        if row.seed in seeds:
            raise ResultError(
                f"{row.where}: id: {row.id!r} of {row.arm} already occurred at {seeds[row.seed].where}; "
                "number repeated samples in a field `seed`, or choose one --filter"
            )
        seeds[row.seed] = row
    return tables


def _summarise_arm(task: str, arm: str, table: Table) -> Arm:
    rows = [row for seeds in table.values() for row in seeds.values()]
    means = [np.mean(scores) for seeds in table.values() if (scores := _known_scores(seeds))]
    seeds = max(len(by_seed) for by_seed in table.values())
    score = float(np.mean(means)) if means else np.nan
    return Arm(task, arm, len(table), seeds, score, sum(math.isnan(row.score) for row in rows))


def _known_scores(seeds: Mapping[str, ScoredAnswer]) -> list[float]:
    return [row.score for row in seeds.values() if not math.isnan(row.score)]


def _pair_two(
    task: str, names: tuple[str, str], tables: tuple[Table, Table], common: bool, prompts: bool
) -> tuple[Pair, list[str]]:
    tables, rekeyed = _key_by_question(names, tables)
    subject_rows, comparator_rows = tables
    notes = _describe_unpaired(task, names, tables)
    if notes and not common:
        raise ResultError(f"{'; '.join(notes)}; correct the files, or compare what they share with --common")
    notes += rekeyed
    shared = [
        problem
        for problem in subject_rows
        if problem in comparator_rows and _is_complete(subject_rows[problem], comparator_rows[problem])
    ]
    if not shared:
        raise ResultError(
            f"id: {names[0]} and {names[1]} have no problem of {task!r} in common; check that the ids come "
            "from one problem set"
        )
    seed_sets = {frozenset(subject_rows[problem]) for problem in shared}
    if len(seed_sets) > 1:
        message = (
            f"seed: problems of {task!r} have between {min(map(len, seed_sets))} and {max(map(len, seed_sets))} seeds"
        )
        if not common:
            raise ResultError(
                f"{message}; give each problem the same seeds, or use --common to compare the problems with "
                "the most seeds"
            )
        most = max(seed_sets, key=len)
        shared = [problem for problem in shared if frozenset(subject_rows[problem]) == most]
        notes.append(f"{message}; only the {len(shared)} problems with the most seeds are compared")
    row_pairs = [(subject_rows[problem], comparator_rows[problem]) for problem in shared]
    task_notes = _check_questions(names, row_pairs, prompts)
    order = sorted(subject_rows[shared[0]], key=_seed_key)
    values = [
        np.array([[rows[seed].score for seed in order] for rows in side]) for side in zip(*row_pairs, strict=True)
    ]
    if np.array_equal(values[0], values[1]):
        task_notes.append(
            f"{names[0]} and {names[1]} have identical scores on every problem; check that they are not two "
            "files of one run"
        )
    total = len(subject_rows.keys() | comparator_rows.keys())
    low, high = bound_difference(*tables)
    if total > len(shared):
        task_notes += _weigh_missing(names, tables, (low, high), total - len(shared))
    notes += [f"{task}: {note}" if task else note for note in task_notes]
    return Pair(
        task=task,
        subject=names[0],
        against=names[1],
        problems=tuple(shared),
        subject_scores=values[0],
        comparator_scores=values[1],
        clusters=_pair_clusters(row_pairs),
        left_out=total - len(shared),
        low_bound=low,
        high_bound=high,
    ), notes


def bound_difference(subject_rows: Table, comparator_rows: Table) -> tuple[float, float]:
    """Return the least and the largest mean difference over the problems of either arm, each the mean over its
    seeds, whatever the scores in [0, 1] are that are missing.
    """
    lows, highs = [], []
    for problem in subject_rows.keys() | comparator_rows.keys():
        subject_seeds, comparator_seeds = subject_rows.get(problem, {}), comparator_rows.get(problem, {})
        seeds = subject_seeds.keys() | comparator_seeds.keys()
        subject_low, subject_high = np.mean([_score_range(subject_seeds.get(seed)) for seed in seeds], axis=0)
        comparator_low, comparator_high = np.mean([_score_range(comparator_seeds.get(seed)) for seed in seeds], axis=0)
        lows.append(subject_low - comparator_high)
        highs.append(subject_high - comparator_low)
    return float(np.mean(lows)), float(np.mean(highs))


def _score_range(row: ScoredAnswer | None) -> tuple[float, float]:
    return (0.0, 1.0) if row is None or math.isnan(row.score) else (row.score, row.score)


def _weigh_missing(
    names: tuple[str, str], tables: tuple[Table, Table], bounds: tuple[float, float], left_out: int
) -> list[str]:
    """Describe what the problems that are left out may say, and whether they differ from the others."""
    low, high = (f"{100 * end:+.1f}" for end in bounds)
    notes = [
        (
            f"{left_out} problems of {names[0]} or {names[1]} are left out; whatever their missing scores, the "
            f"difference over all problems is between {low} and {high} points"
        )
    ]
    for lacking, other, table, other_table in ((*names, *tables), (*names[::-1], *tables[::-1])):
        incomplete: list[float] = []
        complete: list[float] = []
        for problem, seeds in other_table.items():
            if scores := _known_scores(seeds):
                is_complete = len(_known_scores(table.get(problem, {}))) >= len(seeds)
                (complete if is_complete else incomplete).append(float(np.mean(scores)))
        if incomplete and complete and rank_sum_p(incomplete, complete) < WARNED:
            notes.append(
                f"WARNING: the scores that {lacking} lacks are not missing at random: on those problems "
                f"{other} scores {100 * np.mean(incomplete):.1f} %, and on the others "
                f"{100 * np.mean(complete):.1f} %"
            )
    return notes


def _describe_unpaired(task: str, names: tuple[str, str], tables: tuple[Table, Table]) -> list[str]:
    """Describe what keeps the two arms from being paired in full, each with its number and the first ids."""
    subject_rows, comparator_rows = tables
    scope = f" of {task!r}" if task else ""
    notes = []
    for name, lacks, table, other_table in ((*names, *tables), (*names[::-1], *tables[::-1])):
        if absent := [problem for problem in table if problem not in other_table]:
            notes.append(f"id: {len(absent)} problems{scope} of {name} are not in {lacks}: {_list_ids(absent)}")
        if unscored := [problem for problem, seeds in table.items() if len(_known_scores(seeds)) < len(seeds)]:
            notes.append(f"score: {len(unscored)} problems{scope} of {name} have no score: {_list_ids(unscored)}")
    mismatched = [
        problem
        for problem in subject_rows
        if problem in comparator_rows and subject_rows[problem].keys() != comparator_rows[problem].keys()
    ]
    if mismatched:
        notes.append(
            f"seed: {len(mismatched)} problems{scope} have different seeds in {names[1]}: {_list_ids(mismatched)}"
        )
    return notes


def _list_ids(ids: Sequence[str]) -> str:
    return ", ".join(map(repr, ids[:MAX_IDS])) + (", ..." if len(ids) > MAX_IDS else "")


def _is_complete(first: Mapping[str, ScoredAnswer], second: Mapping[str, ScoredAnswer]) -> bool:
    rows = (*first.values(), *second.values())
    return first.keys() == second.keys() and not any(math.isnan(row.score) for row in rows)


def _seed_key(name: str) -> tuple[int, str]:
    """Return a sort key: numbers by their value, before any other text."""
    return (int(name), "") if name.isdecimal() else (1 << 62, name)


def _check_questions(names: tuple[str, str], row_pairs: Sequence[SeedPair], prompts: bool) -> list[str]:
    """Check that paired rows have the same question and prompt.

    Raises ResultError if one id names two questions and, unless `prompts`, for different prompts. Returns
    notes on what could not be checked, and on differences that were allowed.
    """
    notes, unknown, other_prompts = [], set(), set()
    for first, second in (
        (subject_seeds[seed], comparator_seeds[seed])
        for subject_seeds, comparator_seeds in row_pairs
        for seed in subject_seeds
    ):
        _check_measure(first, second)
        own, other = dict(first.question), dict(second.question)
        if not own.keys() & other.keys():
            unknown.add(first.id)
        elif _is_other_question(first, second):
            raise ResultError(
                f"{second.where}: id: {second.id!r} is a different question at {first.where}; name files "
                "of the same version of the task"
            )
        if first.prompt and second.prompt and first.prompt[0] == second.prompt[0] and first.prompt != second.prompt:
            other_prompts.add(first.id)
            if not prompts:
                raise ResultError(
                    f"{second.where}: prompt: {second.id!r} has a different prompt at {first.where}; run "
                    "both with the same template and examples, or pass --prompts-differ"
                )
    if unknown:
        notes.append(
            f"{len(unknown)} problems of {names[0]} and {names[1]} are paired by id alone, because not "
            f"both files contain the question{_describe_numbers(unknown)}"
        )
    if other_prompts:
        notes.append(f"{len(other_prompts)} problems had different prompts in {names[0]} and {names[1]}")
    return notes


def _is_other_question(first: ScoredAnswer, second: ScoredAnswer) -> bool:
    """Return whether a part that both files tell of the question differs."""
    parts = dict(second.question)
    return any(parts.get(kind, digest) != digest for kind, digest in first.question)


def _describe_numbers(ids: Iterable[str]) -> str:
    """Return a warning for ids that are bare numbers, as those of rows are."""
    if not all(name.isdecimal() for name in ids):
        return ""
    return (
        ", and their ids are bare numbers: if these count the rows of files in different orders, the pairs "
        "are wrong; add a column `question`, or ids that name the problems"
    )


def _key_by_question(names: tuple[str, str], tables: tuple[Table, Table]) -> tuple[tuple[Table, Table], list[str]]:
    """Return the tables with the comparator's problems under the subject's ids, paired by what was asked, if
    ids are bare numbers that name different questions and the same questions are in both, each once.
    """
    subject_rows, comparator_rows = tables
    shared = subject_rows.keys() & comparator_rows.keys()
    if all(name.isdecimal() for name in (*subject_rows, *comparator_rows)) and any(
        _is_other_question(_any_row(subject_rows[name]), _any_row(comparator_rows[name])) for name in shared
    ):
        for content in (lambda row: row.question, lambda row: (row.question, row.prompt)):
            ids_of = [{content(_any_row(seeds)): name for name, seeds in table.items()} for table in tables]
            is_each_once = all(len(ids) == len(table) for ids, table in zip(ids_of, tables, strict=True))
            fewer, more = sorted(ids_of, key=len)
            if is_each_once and fewer.keys() <= more.keys():
                renamed = {
                    ids_of[0].get(content(_any_row(seeds)), f"{name} of {names[1]}"): seeds
                    for name, seeds in comparator_rows.items()
                }
                note = "are paired by question, because their ids count the rows of files in different orders"
                return (subject_rows, renamed), [f"{names[0]} and {names[1]} {note}"]
    return tables, []


def _any_row(seeds: Seeds) -> ScoredAnswer:
    return next(iter(seeds.values()))


def _check_measure(first: ScoredAnswer, second: ScoredAnswer) -> None:
    """Raise ResultError if two scores are known to be of different metrics or filters."""
    measures = dict(second.measure)
    for kind, name in first.measure:
        if measures.get(kind, name) != name:
            raise ResultError(
                f"{second.where}: {kind}: is {measures[kind]!r}, but {name!r} at {first.where}; scores of "
                "two metrics cannot be paired: name files with the same one"
            )


def _pair_clusters(row_pairs: Sequence[SeedPair]) -> tuple[str, ...] | None:
    """Return the cluster of each problem. Raises ResultError if some have no cluster, or one has two."""
    labels = []
    for first, second in row_pairs:
        rows = (*first.values(), *second.values())
        clusters = {row.cluster for row in rows if row.cluster is not None}
        if len(clusters) > 1:
            raise ResultError(
                f"{rows[0].where}: cluster: {rows[0].id!r} has {len(clusters)} clusters; a problem must be in "
                "exactly one"
            )
        labels.append((rows[0], next(iter(clusters), None)))
    known = [label for _, label in labels if label is not None]
    if not known:
        return None
    for row, label in labels:
        if label is None:
            raise ResultError(f"{row.where}: cluster: {row.id!r} has no cluster; name one for every problem")
    return tuple(known)
