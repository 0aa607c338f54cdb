"""Error rates and power of the registered test, from simulated studies with a known truth."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from analysis.anatomy import over_traces
from analysis.anatomy.agreement import Agreement
from analysis.anatomy.judging import best
from analysis.anatomy.simulated import Nature, made_up
from analysis.stats import correlations
from analysis.stats.multiplicity import corrected

Floats = NDArray[np.float64]
__all__ = ["Found", "Size", "studied"]


class Size(NamedTuple):
    """The size of a study: traces of each half, (signal, layer) rows, and (model, task) pairs."""

    traces: int = 16
    signals: int = 24
    pairs: int = 2
    alpha: float = 0.05
    draws: int = 400


class Found(NamedTuple):
    """The outcome of one simulated study.

    agrees: whether any pair AGREES; beyond: also beyond position. survives, partial_survives: whether any row
    of any pair survives the correction of the exploratory table, for rho and for the partial rho. right:
    whether the planted row of the first pair was chosen and AGREES. mean, sd: of its rho over the traces of
    the testing half.
    """

    agrees: bool
    beyond: bool
    survives: bool
    partial_survives: bool
    right: bool
    mean: float
    sd: float


def studied(nature: Nature, size: Size, rng: np.random.Generator) -> Found:
    """Simulate and judge one study. A planted signal is row 0 of the first pair."""
    level = corrected(size.alpha, size.pairs)
    agrees = beyond = survives = partial_survives = right = False
    mean = sd = float("nan")
    for pair in range(size.pairs):
        trends = rng.uniform(-nature.trend, nature.trend, size.signals)
        planted = np.zeros(size.signals, dtype=bool)
        planted[0] = pair == 0 and nature.strength != 0
        halves = [_half(nature, size, trends, planted, rng) for _ in range(2)]
        choice = best(halves[0])
        if choice is not None and choice.layer is not None:
            column = halves[1].rho[:, [choice.layer]]
            p = over_traces.one_sided(over_traces.means(column), choice.sign)[0]
            partial = over_traces.means(halves[1].partial[:, [choice.layer]])
            if p <= level:
                agrees = True
                beyond |= bool(over_traces.one_sided(partial, choice.sign)[0] <= level)
                right |= bool(planted[choice.layer])
        if pair == 0:
            of = over_traces.means(halves[1].rho[:, :1])
            mean, sd = float(of.mean[0]), float(of.sd[0])
        for name, own in (("rho", [one.rho for one in halves]), ("partial", [one.partial for one in halves])):
            marked = (over_traces.family_p(np.concatenate(own), size.draws, rng) <= level)[~planted].any()
            survives, partial_survives = (
                survives or bool(marked and name == "rho"),
                partial_survives or bool(marked and name == "partial"),
            )
    return Found(agrees, beyond, survives, partial_survives, right, mean, sd)


def _half(
    nature: Nature,
    size: Size,
    trends: NDArray[np.float64],
    planted: NDArray[np.bool_],
    rng: np.random.Generator,
) -> Agreement:
    rho: list[Floats] = []
    partial: list[Floats] = []
    auc: list[Floats] = []
    while len(rho) < size.traces:
        made = made_up(nature, trends, planted, rng)
        if not 0 < made.label.mean() < 1:
            continue
        covered = np.zeros(len(made.label))
        for start, stop, _ in made.windows:
            covered[start:stop] += 1
        held = np.stack([np.arange(len(made.label)), covered])
        found = correlations.rows(made.signals, made.label, held)
        rho.append(found.rho)
        auc.append(found.auc)
        partial.append(found.partial)
    problems = tuple(map(str, range(size.traces)))
    rows = tuple(("made", row) for row in range(size.signals))
    return Agreement(rows, problems, problems, np.array(rho), np.array(partial), np.array(auc))
