"""The curves of a study: accuracy of every arm over its budgets, against a measured value."""

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from figures.canvas.shares import Share, share

__all__ = ["Curves", "Point", "curved"]


class Point(NamedTuple):
    """One arm at one budget: the measured value, in the unit of the axis, and its accuracy."""

    budget: str
    at: float
    accuracy: Share


class Curves(NamedTuple):
    """The curves of one model and task. arms: by name, in registered order. full: the arm that evicts
    nothing.
    """

    model: str
    task: str
    arms: dict[str, list[Point]]
    full: Point | None

    @property
    def shares(self) -> list[Share]:
        every = [*itertools.chain(*self.arms.values()), *([self.full] if self.full else [])]
        return [point.accuracy for point in every]


def curved(
    judged: Mapping[str, Any], lanes: Any, measured: Callable[[Mapping[str, Any], Any], float]
) -> list[Curves]:
    """Return the curves of every model and task with a graded arm, in registered order, with budgets in the
    same order.

    lanes: those of `study_files.read`. measured: returns the axis value of a judged arm and its lanes.
    """
    by_arm = {
        key: (share(group, group["correct"], group["correct"].notna()), group)
        for key, group in lanes.groupby(["model", "task", "budget", "arm"])
    }
    found: dict[tuple[str, str], Curves] = {}
    for one in judged["arms"]:
        model, task, budget, arm = (one[name] for name in ("model", "task", "budget", "arm"))
        mine = found.setdefault((model, task), Curves(model, task, {}, None))
        own, group = by_arm[model, task, budget, arm]
        if math.isnan(own.share):
            continue
        point = Point(budget, measured(one, group), own)
        if budget == "full":
            found[model, task] = mine._replace(full=point)
        else:
            mine.arms.setdefault(arm, []).append(point)
    return [place for place in found.values() if place.arms]
