"""Eviction policies for KV caches, as functions of tensors and settings.

policy = policies.get("snapkv")
kept = policy.keep(view, budget=256)        # bool [layer, kv_head, n]

May import: protocol.formats; torch.
"""

from policies.blockwise import Blockwise
from policies.cadence import Cadence, Schedule
from policies.calibration import Bases, Calibrated, Routes, Statistics, Thresholds
from policies.catalogue import diff, get, names
from policies.contract import (
    Allocation,
    AttentionRows,
    AttentionSignal,
    BudgetError,
    CacheSignal,
    Codec,
    Decoding,
    ExtraPromptSignal,
    FedSignal,
    FedTokens,
    HiddenSignal,
    Mark,
    MeasuredSignal,
    Merging,
    NormalisedRows,
    OutputSignal,
    Packing,
    Protection,
    RescoringRouting,
    Rotation,
    Routing,
    Scores,
    Scoring,
    ScoringMemory,
    Selection,
    Signal,
    State,
    TextProtection,
    Trunks,
    UnknownPolicy,
    UnrotatingSignal,
    View,
)
from policies.decoding import Plain, StateLines
from policies.policy import Eviction, Policy, pin_prompt
from policies.protect import Boundary, Marked, Pinned, Preserve, Protect, RecentHalf
from policies.routing import Adaptive, PerHead, PerLayer, Pyramid, Shared
from policies.selection import Chunks, Diverse, TopK
from policies.signals import Norms, read_signal
from policies.state import Verbatim

__all__ = [
    "Adaptive",
    "Allocation",
    "AttentionRows",
    "AttentionSignal",
    "Bases",
    "Blockwise",
    "Boundary",
    "BudgetError",
    "CacheSignal",
    "Cadence",
    "Calibrated",
    "Chunks",
    "Codec",
    "Decoding",
    "Diverse",
    "Eviction",
    "ExtraPromptSignal",
    "FedSignal",
    "FedTokens",
    "HiddenSignal",
    "Mark",
    "Marked",
    "MeasuredSignal",
    "Merging",
    "NormalisedRows",
    "Norms",
    "OutputSignal",
    "Packing",
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
    "RescoringRouting",
    "Rotation",
    "Routes",
    "Routing",
    "Schedule",
    "Scores",
    "Scoring",
    "ScoringMemory",
    "Selection",
    "Shared",
    "Signal",
    "State",
    "StateLines",
    "Statistics",
    "TextProtection",
    "Thresholds",
    "TopK",
    "Trunks",
    "UnknownPolicy",
    "UnrotatingSignal",
    "Verbatim",
    "View",
    "diff",
    "get",
    "names",
    "pin_prompt",
    "read_signal",
]
