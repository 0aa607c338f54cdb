"""Two arms to one paired difference: the same problems, the same seeds, or a refusal that names what is
missing.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from analysis.stats.interval import DegenerateDifference

__all__ = ["difference"]


def difference(
    own: Mapping[str, Sequence[float]], other: Mapping[str, Sequence[float]]
) -> NDArray[np.float64]:
    """[problem, seed], `own` minus `other`, problems in the order of `own`.

    own, other: of each problem id its scores, 0 to 1, seeds in one order. Raises DegenerateDifference for
    an empty arm, a problem that one arm lacks, or another number of seeds.
    """
    for name, arm in (("own", own), ("other", other)):
        if not arm:
            raise DegenerateDifference(f"{name}: an empty arm; there is nothing to compare with")
    if apart := own.keys() ^ other.keys():
        lacking = "own" if min(apart) in other else "other"
        raise DegenerateDifference(
            f"{lacking}: lacks problem {min(apart)!r}, one of {len(apart)} unpaired; pair the arms first"
        )
    seeds = len(next(iter(own.values())))
    for problem in own:
        if (found := {len(own[problem]), len(other[problem])}) != {seeds}:
            raise DegenerateDifference(
                f"problem {problem!r}: {max(found - {seeds})} seeds, others have {seeds}"
            )
    paired: NDArray[np.float64] = np.array([np.subtract(own[problem], other[problem]) for problem in own])
    return paired
