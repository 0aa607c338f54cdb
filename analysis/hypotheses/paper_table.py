"""Table 1 of "Minimal-Intervention KV Retention via Set-Conditioned Diversity", quoted, with symbols spelled out.

By Sun, Harn, He and Qin, arXiv:2605.14292. None of it is a result of this project.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class QuotedGate(NamedTuple):
    family: str
    gate: str
    hypothesis: str
    verdict: str
    mode: str
    policies: tuple[str, ...]
    """The policies of this project that implement the gate."""


QUOTED_GATES: tuple[QuotedGate, ...] = (
    QuotedGate(
        "State",
        "subspace",
        "Per-head V is low-rank; a rank-32 PCA basis holds quality at about 1.6x memory saving.",
        "Killed",
        "Proxy-to-runtime drift",
        ("subspace",),
    ),
    QuotedGate(
        "State",
        "syn_mem",
        "Span-mean “synthetic” slots plus a log(N) mass bias beat per-token retention at extreme budgets.",
        "Killed",
        "Family-level bundling",
        ("syn_mem-1", "syn_mem-2", "syn_mem-3", "syn_mem-4"),
    ),
    QuotedGate(
        "Routing",
        "static_route",
        "An offline-calibrated per-head choice between uniform and attention scoring beats either alone.",
        "Killed",
        "Proxy-to-runtime drift",
        ("static_route",),
    ),
    QuotedGate(
        "Cadence",
        "schedule",
        "Round-indexed budget schedules favor high-risk reasoning stretches at matched mean cache.",
        "Killed",
        "Iso-cache under-performance",
        ("schedule-front", "schedule-back", "schedule-inverted"),
    ),
    QuotedGate(
        "Decoding",
        "state_emit",
        "Prompted compact “State:” anchor lines give the eviction scorer dense pinnable tokens.",
        "Killed",
        "Iso-cache under-performance",
        ("state_emit",),
    ),
    QuotedGate(
        "Scoring",
        "variant_b",
        "A mean-V cosine prior (+lambda cos(V, dir)) adds signal beyond attention-only scoring.",
        "Killed",
        "Proxy-to-runtime drift",
        ("variant_b",),
    ),
    QuotedGate(
        "Scoring",
        "Q_stats",
        "Recalibrating TriAttention's Q/K statistics on math traces improves 1d at aggressive budgets.",
        "Killed (“a screening-grade kill”)",
        "n = 50 instability",
        ("q_stats",),
    ),
    QuotedGate(
        "Scoring",
        "alpha (lambda = 0.5)",
        "Set-conditioned greedy selection with a cosine-against-retained V-diversity penalty.",
        "Survived",
        "n/a",
        ("1d_div",),
    ),
)

FAILURE_MODES: Mapping[str, str] = MappingProxyType(
    {
        "iso-cache underperformance": "worse once mean memory is matched while decoding",
        "n = 50 instability": "effects at 50 problems shrink or reverse at 200; below 200 a study is only a screening",
        "proxy-to-runtime drift": "good on the proxy by which it was chosen, but not in the full run",
        "family-level bundling": "one failed attempt is not its family's failure",
        "cross-model transfer failure": "a result on one model does not transfer to another",
        "extraction collapse": "a caveat: most wrong answers contain no answer at all",
    }
)
"""The five failure modes of section 3.2 and its caveat, paraphrased."""


def quoted_gate(name: str) -> QuotedGate | None:
    """Return what the paper says of the gate that this policy implements; None for any other."""
    return next((gate for gate in QUOTED_GATES if name in gate.policies), None)
