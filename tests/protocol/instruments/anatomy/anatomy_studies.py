"""Error rates and power of the registered test, from simulated studies with a known truth."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from simulated_traces import TraceSettings, simulate_trace

from analysis.stats import correlations
from analysis.stats.multiplicity import corrected_alpha
from protocol.instruments.anatomy.analysis import trace_statistics
from protocol.instruments.anatomy.analysis.agreement import Agreement
from protocol.instruments.anatomy.analysis.registered_test import choose_best

Floats = NDArray[np.float64]


class StudySize(NamedTuple):
    """The size of a study: traces of each half, (signal, layer) rows, and (model, task) pairs."""

    traces: int = 16
    signals: int = 24
    pairs: int = 2
    alpha: float = 0.05
    draws: int = 400


class StudyOutcome(NamedTuple):
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


def simulate_study(nature: TraceSettings, size: StudySize, rng: np.random.Generator) -> StudyOutcome:
    """Simulate and judge one study. A planted signal is row 0 of the first pair."""
    level = corrected_alpha(size.alpha, size.pairs)
    agrees = beyond = survives = partial_survives = right = False
    mean = sd = float("nan")
    for pair in range(size.pairs):
        trends = rng.uniform(-nature.trend, nature.trend, size.signals)
        planted = np.zeros(size.signals, dtype=bool)
        planted[0] = pair == 0 and nature.strength != 0
        halves = [_simulate_half(nature, size, trends, planted, rng) for _ in range(2)]
        choice = choose_best(halves[0])
        if choice is not None and choice.layer is not None:
            column = halves[1].rho[:, [choice.layer]]
            p = trace_statistics.one_sided_p(trace_statistics.means(column), choice.sign)[0]
            partial = trace_statistics.means(halves[1].partial[:, [choice.layer]])
            if p <= level:
                agrees = True
                beyond |= bool(trace_statistics.one_sided_p(partial, choice.sign)[0] <= level)
                right |= bool(planted[choice.layer])
        if pair == 0:
            planted_means = trace_statistics.means(halves[1].rho[:, :1])
            mean, sd = float(planted_means.mean[0]), float(planted_means.sd[0])
        for name, tables in (("rho", [half.rho for half in halves]), ("partial", [half.partial for half in halves])):
            marked = (trace_statistics.family_p(np.concatenate(tables), size.draws, rng) <= level)[~planted].any()
            survives, partial_survives = (
                survives or bool(marked and name == "rho"),
                partial_survives or bool(marked and name == "partial"),
            )
    return StudyOutcome(agrees, beyond, survives, partial_survives, right, mean, sd)


def _simulate_half(
    nature: TraceSettings,
    size: StudySize,
    trends: NDArray[np.float64],
    planted: NDArray[np.bool_],
    rng: np.random.Generator,
) -> Agreement:
    rho: list[Floats] = []
    partial: list[Floats] = []
    auc: list[Floats] = []
    while len(rho) < size.traces:
        trace = simulate_trace(nature, trends, planted, rng)
        if not 0 < trace.label.mean() < 1:
            continue
        covered = np.zeros(len(trace.label))
        for start, stop, _ in trace.windows:
            covered[start:stop] += 1
        controls = np.stack([np.arange(len(trace.label)), covered])
        correlation = correlations.correlate_rows(trace.signals, trace.label, controls)
        rho.append(correlation.rho)
        auc.append(correlation.auc)
        partial.append(correlation.partial)
    problems = tuple(map(str, range(size.traces)))
    rows = tuple(("made", row) for row in range(size.signals))
    return Agreement(rows, problems, problems, np.array(rho), np.array(partial), np.array(auc))
