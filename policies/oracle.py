"""Scores that were given beforehand: what is kept is decided outside, with knowledge that no policy has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from policies.contract import Scores, Signal, View
from policies.policy import Policy
from policies.protect import Protect

__all__ = ["Given", "given"]


@dataclass(frozen=True)
class Given:
    """The score of every token that is fed before the event, in their order.

    What they are worth may have been found by asking the model itself with and without them, so that a lane
    under it is an experiment and no competitor: no catalogue holds it.
    """

    scores: tuple[float, ...]
    needs: ClassVar[frozenset[Signal]] = frozenset()

    def score(self, view: View) -> Scores:
        """Raises ValueError where there are more tokens, or fewer, than scores."""
        if len(self.scores) != len(view.token_ids):
            raise ValueError(
                f"scores: {len(self.scores)} given, and the event sees {len(view.token_ids)} tokens; give "
                "one for each"
            )
        worth = torch.tensor(self.scores, dtype=torch.float64, device=view.token_ids.device)
        return Scores(worth[view.positions.clamp(min=0)])


def given(scores: tuple[float, ...]) -> Policy:
    """Keep the tokens of the highest scores, the same in every layer and head; nothing is protected."""
    return Policy(scoring=Given(scores), protect=Protect(sinks=0, recent=0))
