"""Faults of a design whose arms are compared by agreement with the full cache: docs/decisions/77-agreement.md."""

import math
from collections.abc import Callable, Iterator

from protocol.plan.design import Design

SUPERIOR = "superior"  # the only rule without a margin or a level of accuracy


def list_faults(design: Design, evicts: Callable[[str], bool]) -> Iterator[str]:
    """Yield what a design with an outcome of its own may not have; needs no torch.

    evicts: whether the policy of the named arm ever evicts.
    """
    full_arms = [arm.name for arm in design.arms if not evicts(arm.name)]
    if design.decision.rule != SUPERIOR:
        yield (
            f'decision.rule: {design.decision.rule} is about accuracy; with [outcome] write "{SUPERIOR}", since nobody '
            "knows how much agreement is worth a point of accuracy"
        )
    if design.sweep is not None:
        yield "sweep: its probe decodes no full cache to agree with; leave [outcome] out, or compare the arms without"
    if design.cite:
        yield "cite: arms are fed the full cache's text, which is decoded with them; leave it out with [outcome]"
    for claim in design.claims:
        if claim.says == "same" or claim.parent in full_arms:
            yield (
                f"claims.{claim.name}: with [outcome] an arm may be said to agree better or worse than another that "
                "evicts; the full cache agrees with itself, and a margin of agreement is not known"
            )
    for name in design.decision.against:
        if name in full_arms:
            yield f"decision.against: {name} agrees with itself; with [outcome] name arms that evict"
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
            f"generation.lanes_per_batch: with [outcome] all {lanes} lanes of a batch decode at once; write {lanes} "
            "or more, or fewer problems_per_batch"
        )
