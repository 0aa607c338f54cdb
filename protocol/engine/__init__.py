"""One prompt under many policies: a shared prefill, one batch of lanes, a cache that is really smaller."""

from protocol.engine.decode import run
from protocol.engine.lanes import Lane, LaneFailure, Model, Outcome, Prompt, Run

__all__ = ["Lane", "LaneFailure", "Model", "Outcome", "Prompt", "Run", "run"]
