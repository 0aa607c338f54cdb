"""Faults of a design whose arms are compared by agreement with the full cache: docs/decisions/77-agreement.md."""

import math
from collections.abc import Callable, Iterator
from decimal import Decimal

from protocol.plan.design import Design

SUPERIOR = "superior"
MARGIN_RULES = ("non_inferior", "equivalent")
# Arms that answer one program in eight agree on 87 to 97 % of positions: a wider margin would call all arms alike.
WIDEST_MARGIN = Decimal("0.05")


def list_faults(design: Design, evicts: Callable[[str], bool]) -> Iterator[str]:
    """Yield what a design with an outcome of its own may not have; needs no torch.

    evicts: whether the policy of the named arm ever evicts.
    """
    full_arms = [arm.name for arm in design.arms if not evicts(arm.name)]
    decision = design.decision
    if decision.rule not in (SUPERIOR, *MARGIN_RULES):
        yield (
            f'decision.rule: {decision.rule} is about accuracy; with [outcome] write "{SUPERIOR}", '
            f'"{MARGIN_RULES[0]}" or "{MARGIN_RULES[1]}"'
        )
    elif decision.rule in MARGIN_RULES and decision.rule_settings["margin"] > WIDEST_MARGIN:
        yield (
            f"decision.margin: with [outcome] it is a share of positions, and arms that answer little agree on nearly "
            f"all; write {WIDEST_MARGIN} or less"
        )
    if decision.rule_settings.get("lead_share") is not None:
        yield "decision.lead_share: is of what the full cache gets right; with [outcome] leave it out"
    if design.sweep is not None:
        yield "sweep: its probe decodes no full cache with which arms could agree; leave out [outcome] or the sweep"
    if design.cite:
        yield (
            "cite: with [outcome], arms are fed the full cache's text, so all must be decoded in this study; "
            "leave [cite] out"
        )
    for claim in design.claims:
        if claim.says == "same" or claim.parent in full_arms:
            yield (
                f"claims.{claim.name}: with [outcome], a claim may only say that an arm agrees better or worse than "
                "another evicting arm: the full cache agrees with itself, and only rules have a margin of agreement"
            )
    yield from _lanes_faults(design, full_arms)


def _lanes_faults(design: Design, full_arms: list[str]) -> Iterator[str]:
    """Yield where a batch has fewer places than lanes: an arm is fed a token as soon as the full cache says it."""
    generation = design.generation
    if generation.is_batch_invariant:
        return
    cells = sum(
        1
        if arm.name in full_arms
        else len(design.all_budgets if arm.name in design.decision.against else design.budgets)
        for arm in (*design.arms, design.arm(design.decision.against[0]))  # which a probe runs again
    )
    lanes = math.prod((cells, len(design.seeds), generation.problems_per_batch or 1))
    if (generation.lanes_per_batch or 0) < lanes:
        yield (
            f"generation.lanes_per_batch: with [outcome], all {lanes} lanes of a batch must decode at once; "
            f"write {lanes} or more, or fewer problems_per_batch"
        )
