"""Captions of the drawings of occlusion attribution, read by every report, so nothing of a study is imported."""

from collections.abc import Mapping
from types import MappingProxyType

# name of a drawing -> its caption and its alternative text
CAPTIONS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "anatomy_map": (
            "Which signals rank the needed tokens of a trace",
            "Heat map: mean correlation of each signal of each layer with the labels, in both readings; "
            "cells that survive the correction are outlined. The numbers of the registered test are in its "
            "table.",
        ),
        "anatomy_trace": (
            "One trace: what its answer needed, and what each arm kept",
            "Rows of boxes under the tokens of one trace: which of them were needed, and what share of heads "
            "and layers each arm kept; the oracle's row is marked unreachable.",
        ),
        "anatomy_labels": (
            "Where the needed tokens lie (exploratory)",
            "Dots: share of needed tokens by tenth of the span and by class of token, with 95 % intervals.",
        ),
        "anatomy_curve": (
            "Accuracy at the cut over labelled traces (exploratory); the oracle is unreachable",
            "Lines: accuracy of every arm that evicts once at the cut, by slots, and of an oracle that knows "
            "the labels. These accuracies are not comparable with any others of this study.",
        ),
    }
)
