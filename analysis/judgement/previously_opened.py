"""Held-out problems that were not fresh, from the lock only: previously opened ones, the whole set of a
reproduction, and clusters that also have development problems.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from analysis.judgement.judging_rules import is_judged_as_shipped


class OpenedProblems(NamedTuple):
    """Previously opened problems of a task. opened: held-out problems that earlier registrations opened, each
    counted once; total: all held-out problems.

    by_registration: how many each registration opened, in the order of the lock.
    """

    task: str
    opened: int
    total: int
    by_registration: dict[str, int]


def opened_problems(lock: Mapping[str, Any]) -> list[OpenedProblems]:
    """Return the tasks with previously opened problems. Locks without this field give none."""
    opened_tasks = []
    for task, item in lock["items"].items():
        registrations = [
            (registration["name"], registration["problems"].get(task, [])) for registration in lock.get("opened", [])
        ]
        by_registration = {name: len(ids) for name, ids in registrations if ids}
        if by_registration:
            distinct = {problem for _, ids in registrations for problem in ids}
            opened_tasks.append(OpenedProblems(task, len(distinct), len(item["confirm"]), by_registration))
    return opened_tasks


def describe_opened(lock: Mapping[str, Any]) -> list[str]:
    """Return a sentence per task, and one for each claimed registration whose lock could not be read."""
    sentences = []
    for task, opened, total, by_registration in opened_problems(lock):
        has_several = len(by_registration) > 1
        names = [f"{name} ({count})" if has_several else name for name, count in by_registration.items()]
        sentences.append(
            f"{opened} of {total} held-out problems of {task} had been opened before this was locked, by "
            f"{', '.join(names)}."
        )
    unread = [registration["name"] for registration in lock.get("opened", []) if registration["lock"] is None]
    return sentences + [
        f"{name} was claimed earlier, but the problems that it had opened could not be read." for name in unread
    ]


def describe_reuse(lock: Mapping[str, Any]) -> str:
    """Return a clause about held-out problems that may have been known when the study was registered; empty if
    none was, and for a study that is judged as shipped. A registration whose problems could not be read may have
    opened them.
    """
    if is_judged_as_shipped(lock):
        return ""
    clauses = [
        f"{opened} of {total} held-out problems of {task} had been opened by {', '.join(by_registration)}"
        for task, opened, total, by_registration in opened_problems(lock)
    ]
    unread = [registration["name"] for registration in lock.get("opened", []) if registration["lock"] is None]
    clauses += [f"the problems that {name} had opened could not be read" for name in unread]
    return "; ".join(clauses)


def describe_reproduction(lock: Mapping[str, Any]) -> str:
    """Return a clause about a study that runs its parent again on the same problems; else an empty text."""
    parent = lock.get("parent")
    if parent is None or parent.get("fresh"):
        return ""
    return (
        f"of {parent['name']}, on its problems and with its seeds: it shows that the run can be repeated, and "
        "nothing about other problems"
    )


def describe_shared_clusters(lock: Mapping[str, Any]) -> list[str]:
    """Return a sentence per task that has clusters (documents, templates) in both splits."""
    sentences = []
    for task, item in lock["items"].items():
        cluster_by_problem = item.get("clusters", {})
        dev, confirm = (
            {cluster_by_problem[problem] for problem in item[part] if problem in cluster_by_problem}
            for part in ("dev", "confirm")
        )
        if shared := dev & confirm:
            held_out = sum(cluster_by_problem.get(problem) in shared for problem in item["confirm"])
            sentences.append(
                f"{len(shared)} of {len(confirm)} clusters of held-out problems of {task} also contain "
                f"development problems: {held_out} of {len(item['confirm'])} held-out problems are in such "
                "clusters."
            )
    return sentences
