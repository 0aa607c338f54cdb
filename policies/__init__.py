"""Eviction policies for KV caches, as functions of tensors and settings.

policy = policies.get("snapkv")
kept = policy.keep(view, budget=256)        # bool [layer, kv_head, n]
"""

from policies.cadence import Cadence
from policies.catalogue import diff, get, names
from policies.contract import (
    AttentionSignal,
    BudgetError,
    CacheSignal,
    HiddenSignal,
    Protection,
    Remembered,
    Routing,
    Rows,
    Scores,
    Scoring,
    Selection,
    Signal,
    Trunks,
    UnknownPolicy,
    View,
)
from policies.crystal import BranchDissolution
from policies.decoding import Plain
from policies.policy import Event, Policy
from policies.protect import Protect, RecentHalf
from policies.routing import Adaptive, PerHead, PerLayer, Pyramid, Shared
from policies.selection import Chunks, TopK
from policies.state import Verbatim

__all__ = [
    "Adaptive",
    "AttentionSignal",
    "BranchDissolution",
    "BudgetError",
    "CacheSignal",
    "Cadence",
    "Chunks",
    "Event",
    "HiddenSignal",
    "PerHead",
    "PerLayer",
    "Plain",
    "Policy",
    "Protect",
    "Protection",
    "Pyramid",
    "RecentHalf",
    "Remembered",
    "Routing",
    "Rows",
    "Scores",
    "Scoring",
    "Selection",
    "Shared",
    "Signal",
    "TopK",
    "Trunks",
    "UnknownPolicy",
    "Verbatim",
    "View",
    "diff",
    "get",
    "names",
]
