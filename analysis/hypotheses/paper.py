"""Table 1 of "Minimal-Intervention KV Retention via Set-Conditioned Diversity", quoted, with symbols spelled
out.

By Sun, Harn, He and Qin, arXiv:2605.14292. None of it is a result of this project.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

__all__ = ["MODES", "SAID", "Said", "said"]


class Said(NamedTuple):
    family: str
    gate: str
    hypothesis: str
    verdict: str
    mode: str
    ours: tuple[str, ...]
    """The policies of this project that implement the gate."""


SAID: tuple[Said, ...] = (
    Said(
        "State",
        "subspace",
        "Per-head V is low-rank; a rank-32 PCA basis holds quality at about 1.6x memory saving.",
        "Killed",
        "Proxy-to-runtime drift",
        ("subspace",),
    ),
    Said(
        "State",
        "syn_mem",
        "Span-mean “synthetic” slots plus a log(N) mass bias beat per-token retention at extreme budgets.",
        "Killed",
        "Family-level bundling",
        ("syn_mem-1", "syn_mem-2", "syn_mem-3", "syn_mem-4"),
    ),
    Said(
        "Routing",
        "static_route",
        "An offline-calibrated per-head choice between uniform and attention scoring beats either alone.",
        "Killed",
        "Proxy-to-runtime drift",
        ("static_route",),
    ),
    Said(
        "Cadence",
        "schedule",
        "Round-indexed budget schedules favor high-risk reasoning stretches at matched mean cache.",
        "Killed",
        "Iso-cache under-performance",
        ("schedule-front", "schedule-back", "schedule-inverted"),
    ),
    Said(
        "Decoding",
        "state_emit",
        "Prompted compact “State:” anchor lines give the eviction scorer dense pinnable tokens.",
        "Killed",
        "Iso-cache under-performance",
        ("state_emit",),
    ),
    Said(
        "Scoring",
        "variant_b",
        "A mean-V cosine prior (+lambda cos(V, dir)) adds signal beyond attention-only scoring.",
        "Killed",
        "Proxy-to-runtime drift",
        ("variant_b",),
    ),
    Said(
        "Scoring",
        "Q_stats",
        "Recalibrating TriAttention's Q/K statistics on math traces improves 1d at aggressive budgets.",
        "Killed (“a screening-grade kill”)",
        "n = 50 instability",
        ("q_stats",),
    ),
    Said(
        "Scoring",
        "alpha (lambda = 0.5)",
        "Set-conditioned greedy selection with a cosine-against-retained V-diversity penalty.",
        "Survived",
        "n/a",
        ("1d_div",),
    ),
)

MODES: Mapping[str, str] = MappingProxyType(
    {
        "iso-cache underperformance": "worse once mean memory is matched while decoding",
        "n = 50 instability": "effects of 50 problems shrink or turn at 200; below 200 a study screens",
        "proxy-to-runtime drift": "good on what it was chosen by, not in the run",
        "family-level bundling": "one failed attempt is not its family's failure",
        "cross-model transfer failure": "what holds on one model does not on another",
        "extraction collapse": "a caveat: most wrong answers are no answer at all",
    }
)
"""The five failure modes of section 3.2 and its caveat, paraphrased."""


def said(name: str) -> Said | None:
    """Return what the paper says of the gate that this policy implements; None for any other."""
    return next((one for one in SAID if name in one.ours), None)
