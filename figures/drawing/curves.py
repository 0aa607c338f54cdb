"""The curves of a study: accuracy of every arm over its budgets, against a measured value."""

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from figures.drawing.shares import Share, compute_share


class Point(NamedTuple):
    """One arm at one budget: the measured value, in the unit of the axis, and its accuracy."""

    budget: str
    value: float
    accuracy: Share


class Curves(NamedTuple):
    """The curves of one model and task. arms: by name, in registered order. full: the arm that evicts nothing."""

    model: str
    task: str
    arms: dict[str, list[Point]]
    full: Point | None

    @property
    def shares(self) -> list[Share]:
        every = [*itertools.chain(*self.arms.values()), *([self.full] if self.full else [])]
        return [point.accuracy for point in every]


def build_curves(
    judged: Mapping[str, Any], lanes: Any, measured: Callable[[Mapping[str, Any], Any], float]
) -> list[Curves]:
    """Return the curves of every model and task with a graded arm, in registered order, with budgets in the same order.

    lanes: those of `study_files.read`. measured: returns the axis value of a judged arm and its lanes.
    """
    by_arm = {
        key: (compute_share(group, group["correct"], group["correct"].notna()), group)
        for key, group in lanes.groupby(["model", "task", "budget", "arm"])
    }
    curves_by_cell: dict[tuple[str, str], Curves] = {}
    for arm_row in judged["arms"]:
        model, task, budget, arm = (arm_row[name] for name in ("model", "task", "budget", "arm"))
        cell_curves = curves_by_cell.setdefault((model, task), Curves(model, task, {}, None))
        accuracy, group = by_arm[model, task, budget, arm]
        if math.isnan(accuracy.share):
            continue
        point = Point(budget, measured(arm_row, group), accuracy)
        if budget == "full":
            curves_by_cell[model, task] = cell_curves._replace(full=point)
        else:
            cell_curves.arms.setdefault(arm, []).append(point)
    return [curves for curves in curves_by_cell.values() if curves.arms]
