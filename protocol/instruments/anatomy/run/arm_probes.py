"""The arms of a study on a trace: what each keeps, and the scores that its scoring gives the tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import NamedTuple

import torch
from torch import Tensor

from policies import Cadence, Eviction, Policy, View
from policies.observer import ObservedPolicy
from protocol import engine
from protocol.instruments.anatomy.fields import ORACLE
from protocol.instruments.anatomy.run.layer_statistics import StatisticRow
from protocol.plan.grid import Cell, budget_of, policy_of
from protocol.workspace.planned_study import PlannedStudy

"""The name of the oracle among the arms of a record. It keeps what the labels need, which no policy can know.
"""

PRESS = "is a press, which does not report which tokens it keeps"
ASKS = "asks the model an additional question, which this trace does not answer"
BLOCKS = "reads a context in blocks and evicts between them, so there is no single event over the whole trace"


class Arm(NamedTuple):
    """An arm at one budget. policy: None if it is left out, for the reason in `refused`."""

    name: str
    budget: str
    slots: int | None
    policy: Policy | None
    refused: str = ""


def study_arms(planned: PlannedStudy, model: str, task: str, prompt_tokens: int) -> list[Arm]:
    """Return every arm that evicts, at every budget, with its number of slots in the study. prompt_tokens: of
    the context, the base of relative budgets.
    """
    protocol, results = planned.protocol, list[Arm]()
    for arm in protocol.arms:
        if not protocol.policy(arm.name).evicts:
            continue
        for budget in map(str, protocol.budgets):
            slot = planned.slot(model, arm.name)
            cell = Cell(model, task, budget, arm.name, 0)
            slots = budget_of(protocol, cell, prompt_tokens, planned.use(model, task), slot)
            if arm.press is not None:
                results.append(Arm(arm.name, budget, slots, None, PRESS))
                continue
            policy = policy_of(protocol, cell, slot)
            reason = ASKS if policy.decoding.extra_prompt else BLOCKS if policy.cadence.in_blocks else ""
            results.append(Arm(arm.name, budget, slots, None if reason else policy, reason))
    return results


def oracle_arms(planned: PlannedStudy, model: str, task: str, prompt_tokens: int) -> list[Arm]:
    """Return the oracle at every budget, with slots as computed, and without its policy."""
    slot = planned.slot(model, planned.protocol.arms[0].name)
    slot = None if slot is None else slot._replace(stored=slot.computed)
    return [
        Arm(ORACLE, str(budget), budget.count_slots(prompt_tokens, planned.use(model, task), slot), None)
        for budget in planned.protocol.budgets
    ]


def scores_of(policy: Policy, view: View, budget: int) -> Tensor | None:
    """Return [layer | 1, n], mean over the KV heads; None if the scoring refuses a text that its policy may keep."""
    try:
        return policy.scoring.score(view._replace(budget=budget)).slots.double().mean(1).cpu()
    except ValueError:
        return None


@dataclass(frozen=True)
class ProbedPolicy(ObservedPolicy):
    """A policy whose scoring is recorded before it decides, since the policy may refuse its budget."""

    before_event: Callable[[View, int], None] = field(kw_only=True, compare=False)

    def evict(self, view: View, budget: int) -> Eviction:
        self.before_event(view, budget)
        return super().evict(view, budget)


class ArmProbes:
    """Arms as lanes whose events are recorded: `shares` [n] by index among the arms, the share of layers and
    KV heads that kept each token, and `scores` [layer | 1, n], the mean over KV heads, of every scoring under
    the index of its first arm.
    """

    def __init__(self, probed_arms: Sequence[Arm]) -> None:
        self.arms = probed_arms
        self.shares: dict[int, Tensor] = {}
        self.scores: dict[int, Tensor] = {}

    def lanes(self) -> dict[int, engine.Lane]:
        """Return the lanes by index among the arms, of those that are not left out."""
        return {
            index: engine.Lane(f"{arm.name}/{arm.budget}", self.probe_policy(index, arm.policy), arm.slots, 0)
            for index, arm in enumerate(self.arms)
            if arm.policy is not None
        }

    def probe_policy(self, index: int, policy: Policy) -> Policy:
        def record_scores(view: View, budget: int) -> None:
            known = (self.arms[scored_index].policy for scored_index in self.scores)
            if all(other is None or other.scoring != policy.scoring for other in known):
                scores = scores_of(policy, view, budget)
                if scores is not None:
                    self.scores[index] = scores

        def record_kept(view: View, budget: int, event: Eviction) -> None:
            self.shares[index] = event.retained.double().mean((0, 1)).cpu()

        parts = {part.name: getattr(policy, part.name) for part in fields(Policy)}
        if type(policy.cadence) is Cadence:  # nothing is evicted while it decodes, so nothing is measured
            parts["cadence"] = replace(policy.cadence, interval=None)
        return ProbedPolicy(**parts, inner=policy, observer=record_kept, before_event=record_scores)

    def score_rows(self, tokens: int) -> list[StatisticRow]:
        """Return the scores of every scoring, under the name of its first arm; NaN for tokens after the
        event. A scoring that reads the budget has the first one.
        """
        rows = []
        for index, scores in sorted(self.scores.items()):
            name, layers = f"scoring:{self.arms[index].name}", len(scores)
            for layer, layer_scores in enumerate(scores):
                values = torch.full((tokens,), torch.nan, dtype=torch.float64)
                values[: len(layer_scores)] = layer_scores
                rows.append(StatisticRow(name, None if layers == 1 else layer, values))
        return rows

    def retained_shares(self, index: int, tokens: int) -> Tensor:
        """Return [tokens], NaN for an arm without an event. Tokens fed after the event are kept."""
        if index not in self.shares:
            return torch.full((tokens,), torch.nan, dtype=torch.float64)
        values, event_shares = torch.ones(tokens, dtype=torch.float64), self.shares[index]
        values[: len(event_shares)] = event_shares
        return values
