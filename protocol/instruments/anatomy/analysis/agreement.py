"""Agreement of each signal with the labels, trace by trace.

The measure within a trace is Spearman's rho of a signal with the label over the tokens that may be occluded.
Traces in which every token has one label have no rho and are counted. EpiKV pools the tokens of all traces
(arXiv:2606.26472, section 4.2), which mixes in how traces differ: a trace that needs more of its tokens, or
whose hidden states move more, adds correlation that no single trace has.

*Given position* (`partial`) controls for the ranks of the position and of the number of windows that cover a
token. A signal with a trend agrees with labels that have one (EpiKV, section 3.2, "the temporal-trend
correction"); and fewer windows cover a token at an end of the span, so it is labelled needed less often. The
control is linear in these ranks. If the prompt is needed and the written text is not, the label is a step,
and a signal that only separates the two passes; `partial_within_parts` controls for that too, and decides
where `anatomy.beyond` is "parts".
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from analysis.stats import correlations
from protocol.instruments.anatomy.analysis import token_classes, trace_statistics
from protocol.instruments.anatomy.analysis.traces import Anatomy, Pair, Signal, Trace
from protocol.instruments.anatomy.slip import ANSWER_ATTENTION

Floats = NDArray[np.float64]
POSITION: Signal = ("position", None)
# Signals that cannot be chosen; the second is of an answer that is not yet written.
NOT_CANDIDATES: tuple[Signal, ...] = (POSITION, (ANSWER_ATTENTION, None))
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

    def unit_table(self, table: Floats) -> Floats:
        """Return [unit, signal] of one of the tables; a unit is a trace or a cluster."""
        return trace_statistics.aggregate_units(table, self.clusters)

    @property
    def unit_count(self) -> int:
        """The number of units."""
        return len(set(self.clusters))

    @property
    def candidates(self) -> NDArray[np.bool_]:
        """[signal]: whether the signal may be chosen."""
        return np.array([signal not in NOT_CANDIDATES for signal in self.signals], dtype=bool)


def select_varying(traces: Iterable[Trace], reading: str) -> list[Trace]:
    """Return the labelled traces that have tokens of both labels in this reading."""
    return [trace for trace in traces if trace.windows and 0 < trace.labels(reading).mean() < 1]


def measure_agreement(anatomy: Anatomy, pair: Pair, half: str | None, reading: str | None = None) -> Agreement:
    """Measure the agreement on one half, or on both for None; reading: the registered one by default."""
    reading = reading or anatomy.reading
    traces = select_varying(anatomy.traces_of(pair, half), reading)
    signals = _all_signals(traces)
    tables = []
    for trace in traces:
        label = trace.labels(reading)
        controls = np.stack([np.arange(len(label)), trace.window_counts(reading)])
        tables.append(_correlate(signals, trace, _span_values(trace), label, controls))
    # Rounded, so that sums in another order give the same choice.
    return _stack_traces(signals, traces, [np.round(table, 12) for table in tables])


def _all_signals(traces: Iterable[Trace]) -> tuple[Signal, ...]:
    return tuple(dict.fromkeys(signal for trace in traces for signal in trace.signals))


def _correlate(
    signals: tuple[Signal, ...], trace: Trace, values: Floats, label: NDArray[np.int8], controls: Floats | None = None
) -> Floats:
    """Return [rho | partial | auc, signal], NaN if the trace lacks it. values: [signal of the trace, token]."""
    correlation = correlations.correlate_rows(values, label, controls)
    by_signal = dict(zip(trace.signals, np.stack(correlation[:3], axis=1), strict=True))
    return np.stack([by_signal.get(signal, np.full(3, np.nan)) for signal in signals], axis=1)


def _stack_traces(signals: tuple[Signal, ...], traces: list[Trace], tables: list[Floats]) -> Agreement:
    problems, clusters = tuple(trace.problem for trace in traces), tuple(trace.cluster for trace in traces)
    stacked = np.array(tables).reshape(len(traces), 3, len(signals))
    return Agreement(signals, problems, clusters, *(stacked[:, part] for part in range(3)))


def partial_within_parts(anatomy: Anatomy, pair: Pair, half: str | None, agreement: Agreement) -> Floats:
    """Return [trace, signal]: the partial rho with separate controls for the prompt and the written text.

    agreement: that of this half, or of both for None. The controls are a level and a slope of the position in
    each of the two parts. If the span lies in one of them the value is that of `partial`.
    """
    table = agreement.partial.copy()
    for index, trace in enumerate(select_varying(anatomy.traces_of(pair, half), anatomy.reading)):
        start, stop = trace.span
        if start < trace.prompt < stop:
            position = np.arange(stop - start)
            prompt = position < trace.prompt - start
            label, counts = trace.labels(anatomy.reading), trace.window_counts(anatomy.reading)
            controls = np.stack([position, counts, prompt, prompt * position])
            table[index] = np.round(_correlate(agreement.signals, trace, _span_values(trace), label, controls)[1], 12)
    return table


def agreement_by_class(anatomy: Anatomy, pair: Pair) -> dict[str, Agreement]:
    """Measure the agreement within the tokens of one class, by its name, without controls. A trace counts if it has at
    least 8 tokens of the class with both labels among them.
    """
    traces = select_varying(anatomy.traces_of(pair), anatomy.reading)
    signals = _all_signals(traces)
    by_name: dict[str, tuple[list[Trace], list[Floats]]] = {name: ([], []) for name in token_classes.CLASSES}
    for trace in traces:
        label, values = trace.labels(anatomy.reading), _span_values(trace)
        token_names = np.array(token_classes.classes_in_span(trace))
        for name, (class_traces, tables) in by_name.items():
            in_class = token_names == name
            if in_class.sum() >= LEAST_TOKENS and np.ptp(label[in_class]):
                class_traces.append(trace)
                tables.append(_correlate(signals, trace, values[:, in_class], label[in_class]))
    return {name: _stack_traces(signals, *lists) for name, lists in by_name.items() if lists[0]}


def pooled_tokens(
    anatomy: Anatomy, pair: Pair, half: str | None, signal: Signal
) -> Iterator[tuple[str, Floats, NDArray[np.int8]]]:
    """Yield the cluster, the values in the span, and the labels of every trace that has the signal.

    Tokens without a value are left out. Traces whose labels do not vary are included, as in the paper's pool.
    """
    for trace in anatomy.traces_of(pair, half):
        if signal in trace.signals:
            start, stop = trace.span
            values = trace.values().signals[trace.signals.index(signal), start:stop].astype(np.float64)
            known = np.isfinite(values)
            yield trace.cluster, values[known], trace.labels(anatomy.reading)[known]


def _span_values(trace: Trace) -> Floats:
    start, stop = trace.span
    return trace.values().signals[:, start:stop].astype(np.float64)
