"""Decode problems under many policies: one shared prefill, one batch of lanes, caches that shrink in memory.

May import: policies, protocol.formats, protocol.engine.attention, protocol.engine.native, protocol.presses,
protocol.layers; numpy, psutil, torch, transformers.
"""

from protocol.engine.decode import run
from protocol.engine.max_concurrent import max_concurrent_lanes
from protocol.engine.run_types import (
    Answers,
    Divergence,
    Lane,
    LaneFailure,
    Model,
    Outcome,
    Progress,
    Prompt,
    Request,
    Run,
)

__all__ = [
    "Answers",
    "Divergence",
    "Lane",
    "LaneFailure",
    "Model",
    "Outcome",
    "Progress",
    "Prompt",
    "Request",
    "Run",
    "max_concurrent_lanes",
    "run",
]
