"""What the text decides of a protected set: how far it can reach, and what happens where it exceeds."""

from dataclasses import dataclass, replace

import pytest
import torch
from looped import looped
from policy_prompts import a_prompt, a_view

import policies
from policies import BudgetError, Policy, Protect, Scores, Shared
from policies.contract import Trunks
from policies.crystal.policy import variants

N = 300
CRYSTALS = ("crystal", *variants())
REFUSING = tuple(name for name in CRYSTALS if not policies.get(name).exceeds)


@dataclass(frozen=True)
class Given:
    """Trunks of these sizes, all of the same worth, and slots that fall in score."""

    sizes: tuple[int, ...]
    longest: int
    needs: frozenset = frozenset()

    def score(self, view):
        starts = [sum(self.sizes[:place]) for place in range(len(self.sizes))]
        spans = tuple(range(start, start + size) for start, size in zip(starts, self.sizes, strict=True))
        flat = torch.zeros(len(spans), dtype=torch.float64)
        slots = -torch.arange(view.slots, dtype=torch.float64).view(1, 1, -1)
        return Scores(slots, Trunks(spans, flat, flat))


def of_trunks(name, sizes, longest, sinks=4, recent=128):
    """The policy of this name on trunks that are given."""
    selection = policies.get(name).selection
    protect = Protect(sinks, recent, always=False)
    return Policy(Given(sizes, longest), selection=selection, routing=Shared(), protect=protect)


def view_of(sizes):
    policy = policies.get("random")
    return a_view(a_prompt(sum(sizes)), [policy])


def worst(longest):
    """Trunks of 300 slots that hold back the most: one begins at slot 3, one ends at the first of the last
    128, each as long as may be; the other slots between them are trunks of 1.
    """
    between = N - 128 - 3 - 2 * longest + 1
    return (3, longest, *[1] * between, longest, *[1] * 127)


@looped("name", REFUSING)
@looped("longest", [1, 2, 9, 32])
def test_no_text_can_hold_back_more_than_the_reach_and_some_text_does(name, longest):
    sizes = worst(longest)
    assert sum(sizes) == N
    policy = of_trunks(name, sizes, longest)
    most = 4 + 128 + 2 * (longest - 1)  # 194 where a trunk may have 32 slots
    protected = policy.protect.slots(torch.ones(N, dtype=torch.bool), most, decoding=False)
    assert policy.reach(protected) == most
    assert policy.keep(view_of(sizes), most).sum(-1).max() == most
    if longest > 1:
        with pytest.raises(BudgetError, match=f"budget of {most - 1} slots is below the {most} slots of"):
            policy.keep(view_of(sizes), most - 1)


@looped("seed", range(30))
def test_random_trunks_never_hold_back_more_than_the_reach(seed):
    generator = torch.Generator().manual_seed(seed)
    longest = int(torch.randint(1, 40, (1,), generator=generator))
    sizes, left = [], N
    while left:
        sizes.append(int(torch.randint(1, min(longest, left) + 1, (1,), generator=generator)))
        left -= sizes[-1]
    policy = of_trunks("crystal", tuple(sizes), longest)
    protected = policy.protect.slots(torch.ones(N, dtype=torch.bool), 200, decoding=False)
    reach = policy.reach(protected)
    view, start, held = view_of(sizes), 0, 0
    for size in sizes:
        held += size if protected[start : start + size].any() else 0
        start += size
    assert held <= reach
    assert policy.keep(view, reach).sum(-1).max() <= reach


def test_a_reach_counts_no_slot_twice_and_none_that_is_not_there():
    policy = policies.get("crystal")
    for n in (10, 132, 150, 180, 194, 195, 1000):
        protected = policy.protect.slots(torch.ones(n, dtype=torch.bool), 132, decoding=False)
        assert policy.reach(protected) == min(n, 194)


@looped("name", [name for name in policies.names() if name not in CRYSTALS])
def test_what_single_slots_protect_reaches_no_further(name):
    policy = policies.get(name)
    protected = policy.protect.slots(torch.ones(N, dtype=torch.bool), 200, decoding=False)
    assert policy.reach(protected) == int(protected.sum())


def test_a_trunk_of_one_slot_reaches_no_further():
    policy = policies.get("crystal-token-level")
    protected = policy.protect.slots(torch.ones(N, dtype=torch.bool), 200, decoding=False)
    assert policy.reach(protected) == 132


@looped("budget", [132, 133, 150, 184])
def test_over_budget_keeps_the_protected_trunks_and_nothing_else(budget):
    """Eq. 31: B_avail is negative, so that every other trunk goes; 185 of the 300 slots stay."""
    sizes = (20, 30, 25, 25, 35, 40, *[25] * 5)  # slots 0 to 3 lie in the first, 172 to 299 in the last 6
    policy = of_trunks("crystal-over-budget", sizes, 40)
    kept = policy.keep(view_of(sizes), budget)[0, 0]
    assert kept.nonzero().flatten().tolist() == [*range(20), *range(135, 300)]


def test_over_budget_is_crystal_where_the_protected_trunks_fit():
    for seed in range(5):
        view = a_view(a_prompt(N, seed=seed), [policies.get("crystal")])
        for budget in (194, 195, 230, 299):
            kept = policies.get("crystal-over-budget").keep(view, budget)
            assert torch.equal(kept, policies.get("crystal").keep(view, budget))


def test_over_budget_still_refuses_a_budget_below_sinks_and_recent():
    """Eq. 30 is a floor that would hold other memory than was registered."""
    policy = policies.get("crystal-over-budget")
    with pytest.raises(BudgetError, match="budget of 131 slots is below the 132 protected slots"):
        policy.keep(a_view(a_prompt(N), [policy]), 131)


@dataclass(frozen=True)
class Greedy:
    """Claims that its trunks exceed the budget, and keeps everything."""

    needs: frozenset = frozenset()
    unused: int = 0
    exceeds: bool = True

    def select(self, view, scores, protected, allocation):
        return torch.ones_like(scores.slots, dtype=torch.bool)


def test_a_policy_may_exceed_its_budget_by_what_it_protects_and_no_more():
    policy = of_trunks("crystal", worst(32), 32)
    greedy = replace(policy, selection=Greedy())
    with pytest.raises(ValueError, match=r"selection kept \[\[300\]\] slots, but \[\[200\]\] were allocated"):
        greedy.keep(view_of(worst(32)), 200)
