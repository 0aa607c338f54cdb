"""Whether accuracy lies above a bar, such as what a guess gets right: a one-sided test that holds at any skew."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

ROUNDING = 1e-9


def p_above(correct: ArrayLike, bar: float, clusters: Sequence[str] | None = None) -> float:
    """Return p of the hypothesis that the mean of `correct` is at most `bar`; 1 without any problem.

    correct: [problem, seed], 1.0 or 0.0, or scores between them. clusters: of each problem; problems of one cluster
    may depend on each other. A unit is a problem, or a cluster with the sum of its problem means, divided by the
    largest number of problems of a cluster: so all lie in [0, 1], and their sum has the mean `bar` times the
    sum of their weights where the hypothesis just holds.

    Units that are all 0 or 1 have the binomial tail, which of all chances with one mean is the largest where all
    are alike (Hoeffding 1956, Ann. Math. Stat. 27:713). For others it is multiplied by e, which holds for any
    independent values in [0, 1] (Bentkus 2004, Ann. Probab. 32:1650, theorem 1.2).
    """
    values = np.asarray(correct, dtype=np.float64)
    if not len(values):
        return 1.0
    units, weights = values.mean(axis=1), np.ones(len(values))
    if clusters is not None:
        _, positions = np.unique(np.asarray(clusters, dtype=object), return_inverse=True)
        units, weights = np.bincount(positions, units), np.bincount(positions).astype(float)
        units, weights = units / weights.max(), weights / weights.max()
    reached = np.floor(units.sum() + ROUNDING)
    tail = float(stats.binom.sf(reached - 1, len(units), min(1.0, bar * weights.mean())))
    is_binary = bool(((units == 0) | (units == 1)).all())
    return min(1.0, tail if is_binary else np.e * tail)


def fewest_above(problems: int, bar: float, level: float) -> int:
    """Return the smallest number of right answers to so many problems whose p is at most `level`; one more than
    `problems` if there is none.
    """
    return int(np.count_nonzero(stats.binom.sf(np.arange(-1, problems), problems, bar) > level))
