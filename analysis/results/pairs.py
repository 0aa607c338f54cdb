"""Pairs the arms of result files by problem; whatever cannot be paired is refused or counted."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from analysis.results.rows import ResultError, Row

__all__ = ["Arm", "Pair", "Paired", "paired"]

SHOWN = 3  # ids in a refusal


class Pair(NamedTuple):
    """One subject and one comparator on the problems of a task that both have in full. Axes [problem, seed].

    clusters: of each problem, in their order; None without clusters. left_out: problems of either arm that
    are not paired.
    """

    task: str
    subject: str
    against: str
    problems: tuple[str, ...]
    own: NDArray[np.float64]
    other: NDArray[np.float64]
    clusters: tuple[str, ...] | None
    left_out: int


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
    said: list[str]


def paired(
    rows: Sequence[Row], subject: str | None = None, *, common: bool = False, prompts: bool = False
) -> Paired:
    """Pair the subject, by default the first arm, with every other arm in every task.

    common: leave out, and count, the problems that one arm lacks, has without a score or with other seeds; by
    default they are refused. prompts: allow different prompts of the arms.

    Raises ResultError, always for a duplicate row and for one id that names two questions.
    """
    arms = list(dict.fromkeys(row.arm for row in rows))
    own = arms[0] if subject is None and arms else subject
    if own not in arms or own is None:
        raise ResultError(f"subject: {own!r} is no arm; there are {', '.join(arms) or 'none'}")
    if len(arms) < 2:
        raise ResultError(f"arms: there is {own!r} alone; name a second file, or a file with two arms")
    if len({" ".join(arm.split()) for arm in arms}) < len(arms):
        raise ResultError(f"arm: {', '.join(map(repr, arms))}: two differ by spaces alone; write one alike")
    tables = _tables(_one_task(rows))
    others = [arm for arm in arms if arm != own]
    tasks = list(dict.fromkeys(task for task, _ in tables))
    found = Paired([], [_arm(task, arm, tables[task, arm]) for task, arm in tables], [])
    for task in tasks:
        for other in others:
            if absent := [arm for arm in (own, other) if (task, arm) not in tables]:
                if not common:
                    raise ResultError(
                        f"task: {absent[0]} has no {task!r}; add it, or leave it out with --common"
                    )
                found.said.append(f"task {task!r} is left out: {absent[0]} has none")
                continue
            pair, said = _pair(task, (own, other), (tables[task, own], tables[task, other]), common, prompts)
            found.pairs.append(pair)
            found.said.extend(said)
    if not found.pairs:
        raise ResultError(f"task: {own} shares none with any other arm; name files of one task")
    return found


Seeds = Mapping[str, Row]  # of a problem, by seed
Table = Mapping[str, Seeds]  # of an arm in a task, by problem
Both = tuple[Seeds, Seeds]  # a problem of two arms


def _one_task(rows: Sequence[Row]) -> Sequence[Row]:
    """Fill in the task of rows whose file does not name it, if all other rows have the same one."""
    named = {row.task for row in rows if row.task}
    return [row._replace(task=row.task or next(iter(named))) for row in rows] if len(named) == 1 else rows


def _tables(rows: Iterable[Row]) -> dict[tuple[str, str], dict[str, dict[str, Row]]]:
    tables: dict[tuple[str, str], dict[str, dict[str, Row]]] = {}
    for row in rows:
        seeds = tables.setdefault((row.task, row.arm), defaultdict(dict))[row.id]
        if row.seed in seeds:
            raise ResultError(
                f"{row.where}: id: {row.id!r} of {row.arm} was at {seeds[row.seed].where} already; "
                "number what was sampled twice in a field `seed`, or choose one --filter"
            )
        seeds[row.seed] = row
    return tables


def _arm(task: str, arm: str, table: Table) -> Arm:
    rows = [row for seeds in table.values() for row in seeds.values()]
    means = [np.mean(there) for seeds in table.values() if (there := _scores(seeds))]
    seeds = max(len(one) for one in table.values())
    score = float(np.mean(means)) if means else np.nan
    return Arm(task, arm, len(table), seeds, score, sum(math.isnan(row.score) for row in rows))


def _scores(seeds: Mapping[str, Row]) -> list[float]:
    return [row.score for row in seeds.values() if not math.isnan(row.score)]


def _pair(
    task: str, names: tuple[str, str], tables: tuple[Table, Table], common: bool, prompts: bool
) -> tuple[Pair, list[str]]:
    own, other = tables
    said = _left_out(task, names, tables)
    if said and not common:
        raise ResultError(f"{'; '.join(said)}; mend the files, or compare the rest with --common")
    kept = [problem for problem in own if problem in other and _whole(own[problem], other[problem])]
    if not kept:
        raise ResultError(
            f"id: {names[0]} and {names[1]} share no problem of {task!r}; are the ids of one set?"
        )
    kinds = {frozenset(own[problem]) for problem in kept}
    if len(kinds) > 1:
        fewer = f"seed: problems of {task!r} have {min(map(len, kinds))} to {max(map(len, kinds))} seeds"
        if not common:
            raise ResultError(f"{fewer}; give each the same, or compare those with the most with --common")
        most = max(kinds, key=len)
        kept = [problem for problem in kept if frozenset(own[problem]) == most]
        said.append(f"{fewer}; the {len(kept)} with the most are compared")
    both = [(own[problem], other[problem]) for problem in kept]
    said += [f"{task}: {one}" if task else one for one in _check(names, both, prompts)]
    order = sorted(own[kept[0]], key=_seed)
    values = [
        np.array([[rows[seed].score for seed in order] for rows in side]) for side in zip(*both, strict=True)
    ]
    if np.array_equal(values[0], values[1]):
        alike = f"{names[0]} and {names[1]} have the same score everywhere; so have two files of one run"
        said.append(f"{task}: {alike}" if task else alike)
    if any(one.startswith("score: ") for one in said):
        said.append(
            "what has no score is seldom missing by chance: an arm that fails on hard problems gains by it"
        )
    every = len(own.keys() | other.keys())
    return Pair(
        task=task,
        subject=names[0],
        against=names[1],
        problems=tuple(kept),
        own=values[0],
        other=values[1],
        clusters=_clusters(both),
        left_out=every - len(kept),
    ), said


def _left_out(task: str, names: tuple[str, str], tables: tuple[Table, Table]) -> list[str]:
    """Describe what keeps the two arms from being paired in full, each with its number and the first ids."""
    own, other = tables
    where = f" of {task!r}" if task else ""
    said = []
    for name, lacks, table in ((names[0], names[1], own), (names[1], names[0], other)):
        absent = [problem for problem in table if problem not in (other if table is own else own)]
        if absent:
            said.append(f"id: {len(absent)} problems{where} of {name} are not in {lacks}: {_some(absent)}")
        empty = [problem for problem, seeds in table.items() if len(_scores(seeds)) < len(seeds)]
        if empty:
            said.append(f"score: {len(empty)} problems{where} of {name} have none: {_some(empty)}")
    both = [problem for problem in own if problem in other and own[problem].keys() != other[problem].keys()]
    if both:
        said.append(f"seed: {len(both)} problems{where} have other seeds in {names[1]}: {_some(both)}")
    return said


def _some(ids: Sequence[str]) -> str:
    return ", ".join(map(repr, ids[:SHOWN])) + (", ..." if len(ids) > SHOWN else "")


def _whole(own: Mapping[str, Row], other: Mapping[str, Row]) -> bool:
    rows = (*own.values(), *other.values())
    return own.keys() == other.keys() and not any(math.isnan(row.score) for row in rows)


def _seed(name: str) -> tuple[int, str]:
    """Return a sort key: numbers by their value, before any other text."""
    return (int(name), "") if name.isdecimal() else (1 << 62, name)


def _check(names: tuple[str, str], both: Sequence[Both], prompts: bool) -> list[str]:
    """Check that paired rows have the same question and prompt.

    Raises ResultError if one id names two questions and, unless `prompts`, for different prompts. Returns
    notes on what could not be checked, and on differences that were allowed.
    """
    said, unknown, other_words = [], set(), set()
    for one, two in ((own[seed], other[seed]) for own, other in both for seed in own):
        _one_measure(one, two)
        if one.question is None or two.question is None or one.question[0] != two.question[0]:
            unknown.add(one.id)
        elif one.question != two.question:
            raise ResultError(
                f"{two.where}: id: {two.id!r} is another question than at {one.where}; "
                "name files of one version of the task"
            )
        if one.prompt and two.prompt and one.prompt[0] == two.prompt[0] and one.prompt != two.prompt:
            other_words.add(one.id)
            if not prompts:
                raise ResultError(
                    f"{two.where}: prompt: {two.id!r} was not given the text of {one.where}; run both with "
                    "one template and the same examples, or say --prompts-differ"
                )
    if unknown:
        said.append(
            f"{len(unknown)} problems of {names[0]} and {names[1]} are paired by id alone: the files do not "
            "both tell what was asked"
        )
    if other_words:
        said.append(f"{len(other_words)} problems were given to {names[0]} and {names[1]} in different texts")
    return said


def _one_measure(one: Row, two: Row) -> None:
    """Raise ResultError if two scores are known to be of different metrics or filters."""
    other = dict(two.measure)
    for what, name in one.measure:
        if other.get(what, name) != name:
            raise ResultError(
                f"{two.where}: {what}: {other[what]!r}, and {name!r} at {one.where}; two metrics are no "
                "pair: name files that have one in common"
            )


def _clusters(both: Sequence[Both]) -> tuple[str, ...] | None:
    """Return the cluster of each problem. Raises ResultError if some have no cluster, or one has two."""
    labels = []
    for own, other in both:
        rows = (*own.values(), *other.values())
        found = {row.cluster for row in rows if row.cluster is not None}
        if len(found) > 1:
            raise ResultError(
                f"{rows[0].where}: cluster: {rows[0].id!r} has {len(found)}; a problem is in one"
            )
        labels.append((rows[0], next(iter(found), None)))
    there = [label for _, label in labels if label is not None]
    if not there:
        return None
    for row, label in labels:
        if label is None:
            raise ResultError(f"{row.where}: cluster: {row.id!r} has none; name one for every problem")
    return tuple(there)
