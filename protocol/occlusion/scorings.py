"""The arms of a study on a trace: what each keeps, and the scores that its scoring gives the tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import NamedTuple

import torch
from torch import Tensor

from policies import Cadence, Event, Policy, View
from policies.watched import Watched
from protocol import engine
from protocol.locked.planned import Planned
from protocol.occlusion.layer_statistics import Row
from protocol.plan.grid import Cell, budget_of, never_evicts, policy_of

__all__ = ["ORACLE", "Arm", "Asking", "arms", "oracles"]

ORACLE = "oracle-occlusion"
"""The name of the oracle among the arms of a record. It keeps what the labels need, which no policy can know.
"""

PRESS = "is a press, which does not say which tokens it keeps"
ASKS = "asks the model beside the problem, so that this trace is no answer to what it asks"
BLOCKS = "reads a context in blocks and evicts on the way, so that it has no one event over the trace"


class Arm(NamedTuple):
    """An arm at one budget. policy: None if it is left out, for the reason in `refused`."""

    name: str
    budget: str
    slots: int | None
    policy: Policy | None
    refused: str = ""


def arms(planned: Planned, model: str, task: str, prompt_tokens: int) -> list[Arm]:
    """Return every arm that evicts, at every budget, with its number of slots in the study. prompt_tokens: of
    the context, the base of relative budgets.
    """
    protocol, found = planned.protocol, list[Arm]()
    for arm in protocol.arms:
        if never_evicts(protocol, arm.name):
            continue
        for budget in map(str, protocol.budgets):
            slot = planned.slot(model, arm.name)
            cell = Cell(model, task, budget, arm.name, 0)
            slots = budget_of(protocol, cell, prompt_tokens, planned.use(model, task), slot)
            if arm.press is not None:
                found.append(Arm(arm.name, budget, slots, None, PRESS))
                continue
            policy = policy_of(protocol, cell, slot)
            reason = ASKS if policy.decoding.asks else BLOCKS if policy.cadence.in_blocks else ""
            found.append(Arm(arm.name, budget, slots, None if reason else policy, reason))
    return found


def oracles(planned: Planned, model: str, task: str, prompt_tokens: int) -> list[Arm]:
    """Return the oracle at every budget, with slots as computed, and without its policy."""
    slot = planned.slot(model, planned.protocol.arms[0].name)
    slot = None if slot is None else slot._replace(own=slot.computed)
    return [
        Arm(ORACLE, str(budget), budget.of(prompt_tokens, planned.use(model, task), slot), None)
        for budget in planned.protocol.budgets
    ]


def scores_of(policy: Policy, view: View, budget: int) -> Tensor | None:
    """Return [layer | 1, n], mean over the KV heads; None if the scoring refuses this text, which its policy
    may keep whole without scoring it.
    """
    try:
        return policy.scoring.score(view._replace(budget=budget)).slots.double().mean(1).cpu()
    except ValueError:
        return None


@dataclass(frozen=True)
class Looking(Watched):
    """A policy whose scoring is recorded before it decides, since the policy may refuse its budget."""

    looked: Callable[[View, int], None] = field(kw_only=True, compare=False)

    def event(self, view: View, budget: int) -> Event:
        self.looked(view, budget)
        return super().event(view, budget)


class Asking:
    """Arms as lanes whose events are recorded: `shares` [n] by index among the arms, the share of layers and
    KV heads that kept each token, and `scores` [layer | 1, n], the mean over KV heads, of every scoring under
    the index of its first arm.
    """

    def __init__(self, asked: Sequence[Arm]) -> None:
        self.arms = asked
        self.shares: dict[int, Tensor] = {}
        self.scores: dict[int, Tensor] = {}

    def lanes(self) -> dict[int, engine.Lane]:
        """Return the lanes by index among the arms, of those that are not left out."""
        return {
            place: engine.Lane(f"{arm.name}/{arm.budget}", self.noted(place, arm.policy), arm.slots, 0)
            for place, arm in enumerate(self.arms)
            if arm.policy is not None
        }

    def noted(self, place: int, policy: Policy) -> Policy:
        def looked(view: View, budget: int) -> None:
            known = (self.arms[own].policy for own in self.scores)
            if all(other is None or other.scoring != policy.scoring for other in known):
                scores = scores_of(policy, view, budget)
                if scores is not None:
                    self.scores[place] = scores

        def told(view: View, budget: int, event: Event) -> None:
            self.shares[place] = event.kept.double().mean((0, 1)).cpu()

        parts = {part.name: getattr(policy, part.name) for part in fields(Policy)}
        if type(policy.cadence) is Cadence:  # nothing is evicted while it decodes, so nothing is measured
            parts["cadence"] = replace(policy.cadence, interval=None)
        return Looking(**parts, inner=policy, told=told, looked=looked)

    def scored(self, tokens: int) -> list[Row]:
        """Return the scores of every scoring, under the name of its first arm; NaN for tokens after the
        event. A scoring that reads the budget has the first one.
        """
        found = []
        for place, scores in sorted(self.scores.items()):
            name, layers = f"scoring:{self.arms[place].name}", len(scores)
            for layer, worth in enumerate(scores):
                own = torch.full((tokens,), torch.nan, dtype=torch.float64)
                own[: len(worth)] = worth
                found.append(Row(name, None if layers == 1 else layer, own))
        return found

    def kept(self, place: int, tokens: int) -> Tensor:
        """Return [tokens], NaN for an arm without an event. Tokens fed after the event are kept."""
        if place not in self.shares:
            return torch.full((tokens,), torch.nan, dtype=torch.float64)
        own, kept = torch.ones(tokens, dtype=torch.float64), self.shares[place]
        own[: len(kept)] = kept
        return own
