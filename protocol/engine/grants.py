"""What a cadence grants an event, held against the budget that was registered."""

from policies import Cadence

__all__ = ["granted"]


def granted(cadence: Cadence, budget: int, step: int) -> int:
    """Slots per KV head and layer that an event may leave once `step` new tokens have been fed.

    A cadence declares the budgets of its rounds, whose mean is at most the registered one, and grants them in
    their order. Raises ValueError for one that declares more, or grants what it did not declare: the lane
    would hold slots that no registration gave it.
    """
    rounds = cadence.budgets(budget)
    if not rounds or min(rounds) < 1 or sum(rounds) > budget * len(rounds):
        raise ValueError(
            f"{type(cadence).__name__} declares {list(rounds)} slots for its rounds, where {budget} are "
            "registered: each is at least 1, and their mean at most that"
        )
    place = 0 if cadence.interval is None else min(step // cadence.interval, len(rounds) - 1)
    found = cadence.budget(budget, step)
    if found != rounds[place]:
        raise ValueError(
            f"{type(cadence).__name__} grants {found} slots at step {step}, where it declares "
            f"{rounds[place]} of the registered {budget}"
        )
    return found
