"""Eviction policies for KV caches, as functions of tensors and settings.

policy = policies.get("snapkv")
kept = policy.keep(view, budget=256)        # bool [layer, kv_head, n]

May import: torch.
"""

from policies.blockwise import Blockwise
from policies.cadence import Cadence, Schedule
from policies.calibrated import Bases, Calibrated, Routes, Statistics, Thresholds
from policies.catalogue import diff, get, names
from policies.contract import (
    Allocation,
    AskedSignal,
    AttentionSignal,
    BudgetError,
    CacheSignal,
    Codec,
    Decoding,
    Fed,
    FedSignal,
    HiddenSignal,
    Mark,
    Measured,
    Merging,
    OfWhole,
    OutputSignal,
    Protection,
    Remembered,
    Rescores,
    Rotation,
    Routing,
    Rows,
    Scores,
    Scoring,
    Sees,
    Selection,
    Signal,
    State,
    Trunks,
    Turning,
    UnknownPolicy,
    View,
)
from policies.crystal import BranchDissolution
from policies.decoding import Plain, StateLines
from policies.policy import Event, Policy, pinned
from policies.protect import Marked, Pinned, Preserve, Protect, RecentHalf
from policies.routing import Adaptive, PerHead, PerLayer, Pyramid, Shared
from policies.selection import Chunks, Diverse, TopK
from policies.signals import Norms, of_all_layers
from policies.state import Verbatim

__all__ = [
    "Adaptive",
    "Allocation",
    "AskedSignal",
    "AttentionSignal",
    "Bases",
    "Blockwise",
    "BranchDissolution",
    "BudgetError",
    "CacheSignal",
    "Cadence",
    "Calibrated",
    "Chunks",
    "Codec",
    "Decoding",
    "Diverse",
    "Event",
    "Fed",
    "FedSignal",
    "HiddenSignal",
    "Mark",
    "Marked",
    "Measured",
    "Merging",
    "Norms",
    "OfWhole",
    "OutputSignal",
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
    "Rescores",
    "Rotation",
    "Routes",
    "Routing",
    "Rows",
    "Schedule",
    "Scores",
    "Scoring",
    "Sees",
    "Selection",
    "Shared",
    "Signal",
    "State",
    "StateLines",
    "Statistics",
    "Thresholds",
    "TopK",
    "Trunks",
    "Turning",
    "UnknownPolicy",
    "Verbatim",
    "View",
    "diff",
    "get",
    "names",
    "of_all_layers",
    "pinned",
]
