"""Held-out problems that were not fresh, from the lock only: previously opened ones, and clusters that also
have development problems.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["Opened", "developed", "opened", "words"]


class Opened(NamedTuple):
    """Previously opened problems of a task. opened: held-out problems that earlier registrations opened, each
    counted once; total: all held-out problems.

    by_registration: how many each registration opened, in the order of the lock.
    """

    task: str
    before: int
    of: int
    by: dict[str, int]


def opened(lock: Mapping[str, Any]) -> list[Opened]:
    """Return the tasks with previously opened problems. Locks without this field give none."""
    found = []
    for task, item in lock["items"].items():
        each = [(one["name"], one["problems"].get(task, [])) for one in lock.get("opened", [])]
        by = {name: len(ids) for name, ids in each if ids}
        if by:
            before = {problem for _, ids in each for problem in ids}
            found.append(Opened(task, len(before), len(item["confirm"]), by))
    return found


def words(lock: Mapping[str, Any]) -> list[str]:
    """Return a sentence per task, and one for each claimed registration whose lock could not be read."""
    said = []
    for task, before, of, by in opened(lock):
        names = list(by) if len(by) == 1 else [f"{name} ({count})" for name, count in by.items()]
        said.append(
            f"{before} of {of} held-out problems of {task} had been opened before this was locked, by "
            f"{', '.join(names)}."
        )
    unread = [one["name"] for one in lock.get("opened", []) if one["lock"] is None]
    return said + [f"What {name}, which was claimed, had opened could not be read." for name in unread]


def developed(lock: Mapping[str, Any]) -> list[str]:
    """Return a sentence per task that has clusters (documents, templates) in both splits."""
    said = []
    for task, item in lock["items"].items():
        of = item.get("clusters", {})
        dev, confirm = ({of[each] for each in item[part] if each in of} for part in ("dev", "confirm"))
        if both := dev & confirm:
            held = sum(of.get(each) in both for each in item["confirm"])
            said.append(
                f"{len(both)} of {len(confirm)} clusters of held-out problems of {task} have development "
                f"problems too: {held} of {len(item['confirm'])} held-out problems are in them."
            )
    return said
