"""Problems under many policies: a shared prefill, one batch of lanes, a cache that is really smaller."""

from protocol.engine.decode import run
from protocol.engine.lanes import Answers, Lane, LaneFailure, Model, Outcome, Prompt, Request, Run
from protocol.engine.places import places_within

__all__ = [
    "Answers",
    "Lane",
    "LaneFailure",
    "Model",
    "Outcome",
    "Prompt",
    "Request",
    "Run",
    "places_within",
    "run",
]
