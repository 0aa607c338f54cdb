"""Ada-KV: the heads of a layer compete for its slots (arXiv:2407.11550)."""

from __future__ import annotations

from policies.policy import Policy
from policies.protect import Protect
from policies.routing import Adaptive
from policies.snapkv import WindowAttention
from protocol.formats.policy_facts import PolicyFacts

FACTS = {
    "ada-snapkv": PolicyFacts(
        "attention",
        "as snapkv, but heads of a layer compete for its slots",
        "arXiv:2407.11550",
        "Heads whose attention is spread out need more slots.",
        parent="snapkv",
        component="routing",
        aliases=("adakv", "ada-kv"),
    )
}


def ada_snapkv(window: int = 32, kernel: int = 5, floor: float = 0.2) -> Policy:
    """SnapKV's scores; KV heads of a layer hold different numbers of slots, whose mean is the budget.

    A head with c of the layer's highest scores gets c * (1 - floor) + floor * base slots in addition to its window,
    where base is the budget minus the window: the rule of AdaptiveSnapKVCluster (FFY0/AdaKV @ efe4e2e), with the 0.2
    that its authors advise for grouped queries. Departs from that code: rounded by largest remainder instead of each
    head alone, whose sum misses the budget; average pooling of 5, as in `snapkv`, instead of maximum pooling of 7, so
    that the two differ in their routing alone; query heads of a group share their mean. AdaKVPress (NVIDIA/kvpress
    0.5.5) has another rule: the floor is each head's best floor * budget slots.
    """
    return Policy(
        scoring=WindowAttention(window, kernel), routing=Adaptive(floor), protect=Protect(sinks=0, recent=window)
    )
