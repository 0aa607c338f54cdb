"""Agreement of each signal with the labels, trace by trace.

The measure within a trace is Spearman's rho of a signal with the label over the tokens that may be occluded.
Traces in which every token has one label have no rho and are counted. EpiKV pools the tokens of all traces
(arXiv:2606.26472, section 4.2), which mixes in how traces differ: a trace that needs more of its tokens, or
whose hidden states move more, adds correlation that no single trace has.

*Given position* (`partial`) controls for the ranks of the position and of the number of windows that cover a
token. A signal with a trend agrees with labels that have one (EpiKV, section 3.2, "the temporal-trend
correction"); and fewer windows cover a token at an end of the span, so it is labelled needed less often. The
control is linear in these ranks. If the prompt is needed and the written text is not, the label is a step,
and a signal that only separates the two passes: see `partial_within_parts`.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from analysis.anatomy import over_traces, token_classes
from analysis.anatomy.reading import Anatomy, Pair, Signal, Trace
from analysis.stats import correlations

__all__ = ["POSITION", "Agreement", "agreement", "by_class", "given_part", "pooled", "varying"]

Floats = NDArray[np.float64]
POSITION: Signal = ("position", None)  # a signal of every trace that cannot be chosen
LEAST_TOKENS = 8  # of a class in a trace; no rho is taken of fewer


class Agreement(NamedTuple):
    """The agreement of signals and labels for one (model, task), over its traces with varying labels.

    rho, partial, auc: [trace, signal], NaN where a signal is constant or has no value.
    """

    signals: tuple[Signal, ...]
    problems: tuple[str, ...]
    clusters: tuple[str, ...]
    rho: Floats
    partial: Floats
    auc: Floats

    def units(self, table: Floats) -> Floats:
        """Return [unit, signal] of one of the tables; a unit is a trace or a cluster."""
        return over_traces.units(table, self.clusters)

    @property
    def number(self) -> int:
        """The number of units."""
        return len(set(self.clusters))

    @property
    def candidates(self) -> NDArray[np.bool_]:
        """[signal]: whether the signal may be chosen."""
        return np.array([signal != POSITION for signal in self.signals], dtype=bool)


def varying(traces: Iterable[Trace], reading: str) -> list[Trace]:
    """Return the labelled traces that have tokens of both labels in this reading."""
    return [one for one in traces if one.windows and 0 < one.labels(reading).mean() < 1]


def agreement(anatomy: Anatomy, pair: Pair, half: str | None, reading: str | None = None) -> Agreement:
    """Measure the agreement on one half, or on both for None; reading: the registered one by default."""
    reading = reading or anatomy.reading
    traces = varying(anatomy.of(pair, half), reading)
    signals = tuple(dict.fromkeys(signal for one in traces for signal in one.signals))
    place = {signal: at for at, signal in enumerate(signals)}
    rho, partial, auc = (np.full((len(traces), len(signals)), np.nan) for _ in range(3))
    for at, one in enumerate(traces):
        label, own = one.labels(reading), _in_span(one)
        columns = [place[signal] for signal in one.signals]
        held = np.stack([np.arange(len(label)), one.covered(reading)])
        found = correlations.rows(own, label, held)
        rho[at, columns], partial[at, columns], auc[at, columns] = found.rho, found.partial, found.auc
    # Rounded, so that sums in another order give the same choice.
    problems, clusters = tuple(one.problem for one in traces), tuple(one.cluster for one in traces)
    return Agreement(signals, problems, clusters, *(np.round(each, 12) for each in (rho, partial, auc)))


def given_part(anatomy: Anatomy, pair: Pair, found: Agreement, reading: str | None = None) -> Floats:
    """Return [trace, signal]: the partial rho with separate controls for the prompt and the written text.

    agreement: that of both halves. The controls are a level and a slope of the position in each of the two
    parts. If the span lies in one of them the value is that of `partial`.
    """
    reading = reading or anatomy.reading
    place, table = {signal: at for at, signal in enumerate(found.signals)}, found.partial.copy()
    for at, one in enumerate(varying(anatomy.of(pair), reading)):
        start, stop = one.span
        if start < one.prompt < stop:
            position = np.arange(stop - start)
            prompt = position < one.prompt - start
            held = np.stack([position, one.covered(reading), prompt, prompt * position])
            columns = [place[signal] for signal in one.signals]
            rows = correlations.rows(_in_span(one), one.labels(reading), held)
            table[at, columns] = np.round(rows.partial, 12)
    return table


def by_class(anatomy: Anatomy, pair: Pair, reading: str | None = None) -> dict[str, Agreement]:
    """Measure the agreement within the tokens of one class, by class name. A trace counts if it has at least
    8 tokens of the class with both labels among them.
    """
    reading = reading or anatomy.reading
    traces = varying(anatomy.of(pair), reading)
    signals = tuple(dict.fromkeys(signal for one in traces for signal in one.signals))
    place = {signal: at for at, signal in enumerate(signals)}
    found: dict[str, tuple[list[Trace], list[Floats], list[Floats]]] = {
        name: ([], [], []) for name in token_classes.CLASSES
    }
    for one in traces:
        label, own, names = one.labels(reading), _in_span(one), np.array(_classes(one))
        for name, (held, rho, auc) in found.items():
            here = names == name
            if here.sum() < LEAST_TOKENS or np.ptp(label[here]) == 0:
                continue
            rows = correlations.rows(own[:, here], label[here])
            columns = [place[signal] for signal in one.signals]
            line = np.full((2, len(signals)), np.nan)
            line[0, columns], line[1, columns] = rows.rho, rows.auc
            held.append(one)
            rho.append(line[0])
            auc.append(line[1])
    return {name: _stacked(signals, *lists) for name, lists in found.items() if lists[0]}


def _stacked(
    signals: tuple[Signal, ...], traces: list[Trace], rho: list[Floats], auc: list[Floats]
) -> Agreement:
    problems, clusters = tuple(one.problem for one in traces), tuple(one.cluster for one in traces)
    table = np.stack(rho)
    return Agreement(signals, problems, clusters, table, np.full_like(table, np.nan), np.stack(auc))


def pooled(
    anatomy: Anatomy, pair: Pair, half: str | None, signal: Signal, reading: str | None = None
) -> Iterator[tuple[str, Floats, NDArray[np.int8]]]:
    """Yield the cluster, the values in the span, and the labels of every trace that has the signal.

    Tokens without a value are left out. Traces whose labels do not vary are included, as in the paper's pool.
    """
    reading = reading or anatomy.reading
    for one in anatomy.of(pair, half):
        if signal in one.signals:
            start, stop = one.span
            values = one.values().signals[one.signals.index(signal), start:stop].astype(np.float64)
            known = np.isfinite(values)
            yield one.cluster, values[known], one.labels(reading)[known]


def _in_span(one: Trace) -> Floats:
    start, stop = one.span
    return one.values().signals[:, start:stop].astype(np.float64)


def _classes(one: Trace) -> list[str]:
    start, stop = one.span
    return [token_classes.class_of(piece) for piece in one.pieces[start:stop]]
