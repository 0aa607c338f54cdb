"""An oracle policy with fixed scores, computed in advance with knowledge that no policy has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from policies.contract import Scores, Signal, View
from policies.policy import Policy
from policies.protect import Protect


@dataclass(frozen=True)
class OracleScores:
    """The score of every token fed before the eviction step, in order.

    Scores may come from running the model with and without each token. The policy is therefore an experiment,
    not a competitor, and is not in the catalogue.
    """

    scores: tuple[float, ...]
    needs: ClassVar[frozenset[Signal]] = frozenset()

    def score(self, view: View) -> Scores:
        """Raise ValueError if the number of tokens differs from the number of scores."""
        if len(self.scores) != len(view.token_ids):
            raise ValueError(
                f"scores: there are {len(self.scores)}, but the eviction step has {len(view.token_ids)} "
                "tokens; give one for each"
            )
        worth = torch.tensor(self.scores, dtype=torch.float64, device=view.token_ids.device)
        return Scores(worth[view.positions.clamp(min=0)])


def oracle_policy(scores: tuple[float, ...]) -> Policy:
    """Keep the tokens of the highest scores, the same in every layer and head; nothing is protected."""
    return Policy(scoring=OracleScores(scores), protect=Protect(sinks=0, recent=0))
