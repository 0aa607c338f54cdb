"""PyramidKV: SnapKV with more slots in the early layers than in the late ones (arXiv:2406.02069)."""

from __future__ import annotations

from policies.policy import Policy
from policies.protect import Protect
from policies.routing import Pyramid
from policies.snapkv import WindowAttention
from protocol.formats.policy_facts import PolicyFacts

FACTS = {
    "pyramidkv": PolicyFacts(
        "attention",
        "as snapkv, but more slots in early layers than in late ones",
        "arXiv:2406.02069",
        "Early layers attend more broadly than late ones.",
        parent="snapkv",
        component="routing",
    )
}


def pyramidkv(window: int = 32, kernel: int = 5, beta: float = 20) -> Policy:
    """SnapKV with budgets that fall by equal steps from layer to layer; the mean over layers is the budget.

    Window, kernel and beta are the `init_pyramidkv` defaults of Zefan-Cai/KVCache-Factory @ c97f9d7. Departs
    from that code: budgets are rounded by largest remainder (its integer steps overrun the budget, by 11 %
    for 128 slots in 32 layers); no equal budgets when the prompt is shorter than twice the scored budget;
    query heads of a group share their mean, as in `snapkv`. kvpress' PyramidKVPress counts the window
    in the base of the pyramid and falls back to equal budgets when the last layer would get less than it.

    The CrystalCache paper calls another policy PyramidKV: falling budgets with scores from the attention of
    all queries (its section 4.3).
    """
    return Policy(
        scoring=WindowAttention(window, kernel), routing=Pyramid(beta), protect=Protect(sinks=0, recent=window)
    )
