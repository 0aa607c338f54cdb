"""Whether an answer needs SlipKV: the test of what is dropped of a thought, and how it compares with other labels."""

from collections import defaultdict
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from protocol.instruments.anatomy.analysis import data_flow, trace_statistics
from protocol.instruments.anatomy.analysis.traces import Anatomy, Pair, Trace
from protocol.instruments.anatomy.fields import MEASURED, READINGS
from protocol.instruments.anatomy.slip import DROPS, RANDOM, SLIP, SLIP_SIGNALS, TOP, thought_sets

QUESTIONS = {"right": "SPARES", "wrong": "REPAIRS"}
NOT_SHOWN, TOO_FEW = "NOT SHOWN", "TOO FEW TRACES"


def test_slip(anatomy: Anatomy, pair: Pair, level: float) -> dict[str, Any]:
    """Return right and wrong: of the traces of both halves that the whole cache answers so, and that are reproduced,
    traces, units (clusters), by what was dropped how many answers are right, ahead and behind: units in which more are
    right without SlipKV than without as many tokens by chance, and fewer; p: one-sided, of the sign test over these;
    word: SPARES (right) or REPAIRS (wrong) for p at most the level, NOT SHOWN, or TOO FEW TRACES below 8 units.
    """
    result = dict[str, dict[str, Any]]()
    for name, shown in QUESTIONS.items():
        traces = [trace for trace in anatomy.traces_of(pair) if trace.slip and _is_right(trace) == (name == "right")]
        ahead_by = defaultdict[str, int](int)
        for trace in traces:
            ahead_by[trace.cluster] += trace.slip[SLIP] - trace.slip[RANDOM]
        ahead, behind = sum(by > 0 for by in ahead_by.values()), sum(by < 0 for by in ahead_by.values())
        p = float(stats.binom.sf(ahead - 1, ahead + behind, 0.5))
        word = TOO_FEW if len(ahead_by) < trace_statistics.FEWEST else shown if p <= level else NOT_SHOWN
        counts = {drop: sum(trace.slip[drop] for trace in traces) for drop in DROPS}
        result[name] = {"traces": len(traces), "units": len(ahead_by), **counts, "ahead": ahead, "behind": behind}
        result[name] |= {"p": p, "word": word}
    return result


def _is_right(trace: Trace) -> bool:
    return trace.state in MEASURED


def slip_labels(anatomy: Anatomy, trace: Trace) -> dict[str, NDArray[np.int8]]:
    """Return by name of a set of the thought [token of the span]: 1 in it. Empty without SlipKV."""
    if not trace.slip or not trace.windows:
        return {}
    start, stop = trace.span
    sets = thought_sets(trace.problem, _signal(trace, SLIP_SIGNALS[0]).tolist(), trace.prompt, stop, anatomy.slip_share)
    return {name: np.isin(np.arange(start, stop), list(sets[name])).astype(np.int8) for name in (TOP, SLIP)}


def _signal(trace: Trace, name: str) -> NDArray[np.float64]:
    row: NDArray[np.float64] = trace.values().signals[trace.signals.index((name, None))].astype(np.float64)
    return row


def compare_slip(anatomy: Anatomy, pair: Pair) -> dict[str, Any] | None:
    """Return what CrystalKV and SlipKV are, over the tokens of the thoughts of all right traces; None without any.

    traces; sets: of top, bottom and, if there is any, rest: share (of the attention of the answer), gap and last: means
    of the signals attention_gap and attention_last; needed: by reading of occlusion and by the flow of data, in the
    traces that have exact labels: of the needed tokens of the thought the share in the set; None without any.
    """
    traces = [trace for trace in anatomy.traces_of(pair) if trace.slip and trace.windows]
    if not traces:
        return None
    tokens = defaultdict[str, list[NDArray[np.float64]]](list)
    needed = defaultdict[tuple[str, str], list[NDArray[np.bool_]]](list)
    for trace in traces:
        start, stop = trace.span
        thought = np.arange(start, stop) >= trace.prompt
        sets = {name: label[thought] == 1 for name, label in slip_labels(anatomy, trace).items()}
        sets |= {"rest": rest} if (rest := ~(sets[TOP] | sets[SLIP])).any() else {}
        values = np.stack([_signal(trace, name)[start:stop][thought] for name in SLIP_SIGNALS])
        labels = {reading: trace.labels(reading) for reading in READINGS}
        if (exact := data_flow.exact_labels(trace)) is not None:
            labels[data_flow.NAME] = exact
        for name, members in sets.items():
            tokens[name].append(values[:, members])
            for label_name, label in labels.items():
                needed[name, label_name].append(members[label[thought] == 1])
    rows = dict[str, dict[str, Any]]()
    for name, parts in tokens.items():
        share = float(np.mean([part[0].sum() for part in parts]))
        _, gap, last = (float(row[np.isfinite(row)].mean()) for row in np.concatenate(parts, axis=1))
        shares = {label: np.concatenate(found) for (of, label), found in needed.items() if of == name}
        rows[name] = {"share": share, "gap": gap, "last": last}
        rows[name]["needed"] = {label: float(found.mean()) if len(found) else None for label, found in shares.items()}
    return {"traces": len(traces), "sets": rows}
