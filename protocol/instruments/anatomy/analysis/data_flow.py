"""Needed tokens that are known exactly: from the flow of data of a program, where a task knows it.

A trace of a task that says what each of its words is read for (`straight_line.Worked.needed`) has exact labels if the
model wrote the right words up to the cut: a token is needed if a word after the cut reads it.
"""

from collections import defaultdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocol.instruments.anatomy.analysis.traces import Anatomy, Pair, Trace
from protocol.instruments.anatomy.fields import READINGS
from protocol.tasks import registry

NAME = "data flow"
BEGIN, THINK = "<s>", "<think>"  # what the template of the models that think has around a prompt


def exact_labels(trace: Trace) -> NDArray[np.int8] | None:
    """Return [token of the span]: 1 if a word after the cut reads it, else 0. None if the task does not know, or if
    the tokens are not the words of its own prompt and solution.
    """
    worked_of = getattr(registry.TASKS.get(trace.task), "worked", None)
    if worked_of is None or not trace.pieces:
        return None
    worked = worked_of(trace.problem)
    prompt = worked.prompt().split()
    words = [BEGIN, *prompt, THINK, *worked.trace.split()]
    if [piece.strip() for piece in trace.pieces] != words[: len(trace.pieces)]:
        return None

    def token_of(word: int) -> int:
        return word + (1 if word < len(prompt) else 2)

    labels = np.zeros(len(trace.pieces), dtype=np.int8)
    cut = len(trace.pieces)
    needed = [token_of(word) for word, read in worked.needed.items() if token_of(word) < cut <= token_of(read)]
    labels[needed] = 1
    start, stop = trace.span
    return labels[start:stop]


def compare_exact(anatomy: Anatomy, pair: Pair) -> dict[str, Any] | None:
    """Return how labels by occlusion and the kept tokens of each arm agree with the exact labels, over the tokens of
    all traces that have these; None without any.

    traces; needed: the share of tokens; occlusion: by reading, of the needed tokens the share that is labelled (found)
    and of the labelled ones the share that is needed (right; NaN if none is labelled); arms: at each budget the share
    kept of needed and of other tokens, mean over (layer, KV head) pairs.
    """
    known = [(trace, labels) for trace in anatomy.traces_of(pair) if (labels := exact_labels(trace)) is not None]
    known = [(trace, labels == 1) for trace, labels in known if trace.windows]
    if not known:
        return None
    everything = np.concatenate([labels for _, labels in known])
    tokens = max(1.0, float(everything.sum())), max(1.0, float((~everything).sum()))
    kept = defaultdict[tuple[str, str], NDArray[np.float64]](lambda: np.zeros(2))
    for trace, needed in known:
        start, stop = trace.span
        for outcome, row in zip(trace.outcomes, trace.values().retained[:, start:stop], strict=True):
            kept[outcome.arm, outcome.budget] += row[needed].sum(), row[~needed].sum()
    occlusion = {}
    for reading in READINGS:
        labelled = np.concatenate([trace.labels(reading) == 1 for trace, _ in known])
        both = float((labelled & everything).sum())
        occlusion[reading] = {
            "found": both / tokens[0],
            "right": both / float(labelled.sum()) if labelled.any() else float("nan"),
        }
    return {
        "traces": len(known),
        "needed": float(everything.mean()),
        "occlusion": occlusion,
        "arms": [
            {"arm": arm, "budget": budget, "needed": float(needed) / tokens[0], "others": float(others) / tokens[1]}
            for (arm, budget), (needed, others) in kept.items()
        ],
    }
