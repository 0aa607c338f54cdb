"""Eviction policies for KV caches, as functions of tensors and settings.

policy = policies.get("snapkv")
kept = policy.keep(view, budget=256)        # bool [layer, kv_head, n]

May import: torch.
"""

from policies.cadence import Cadence, Schedule
from policies.calibrated import Calibrated, Statistics, Thresholds
from policies.catalogue import diff, get, names
from policies.contract import (
    Allocation,
    AttentionSignal,
    BudgetError,
    CacheSignal,
    Fed,
    FedSignal,
    HiddenSignal,
    Measured,
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
from policies.policy import Event, Policy, pinned
from policies.protect import Pinned, Preserve, Protect, RecentHalf
from policies.routing import Adaptive, PerHead, PerLayer, Pyramid, Shared
from policies.selection import Chunks, Diverse, TopK
from policies.signals import Norms, of_all_layers
from policies.state import Verbatim

__all__ = [
    "Adaptive",
    "Allocation",
    "AttentionSignal",
    "BranchDissolution",
    "BudgetError",
    "CacheSignal",
    "Cadence",
    "Calibrated",
    "Chunks",
    "Diverse",
    "Event",
    "Fed",
    "FedSignal",
    "HiddenSignal",
    "Measured",
    "Norms",
    "PerHead",
    "PerLayer",
    "Pinned",
    "Plain",
    "Policy",
    "Preserve",
    "Protect",
    "Protection",
    "Pyramid",
    "RecentHalf",
    "Remembered",
    "Routing",
    "Rows",
    "Schedule",
    "Scores",
    "Scoring",
    "Selection",
    "Shared",
    "Signal",
    "Statistics",
    "Thresholds",
    "TopK",
    "Trunks",
    "UnknownPolicy",
    "Verbatim",
    "View",
    "diff",
    "get",
    "names",
    "of_all_layers",
    "pinned",
]
