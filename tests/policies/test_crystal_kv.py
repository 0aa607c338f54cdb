"""Crystal-KV: Algorithms 1 and 2 of arXiv:2601.16986 by hand, by plain loops and at their limits."""

from fractions import Fraction

import pytest
import torch
from looped import looped

import policies
from policies import AttentionRows, PerHead, Protect, Scores, View
from policies.crystal_kv import (
    Budgets,
    Recency,
    Reference,
    References,
    ReferenceUpdate,
    Utilised,
    adaptive_budget,
    hits,
    log_crf,
    lrfu,
    round_budgets,
)


def hit_by_hand(scores: list[float], p: float) -> list[bool]:
    """Slots from the highest score down, until their sum is p."""
    taken, total = set(), Fraction(0)
    for slot in sorted(range(len(scores)), key=lambda slot: (-scores[slot], slot)):
        if total >= Fraction(p) - Fraction(1, 10**7):
            break
        taken.add(slot)
        total += Fraction(scores[slot])
    return [slot in taken for slot in range(len(scores))]


@looped(
    ("scores", "p", "expected"),
    [
        ([0.61, 0.02, 0.04, 0.03, 0.30], 0.9, [0, 4]),
        ([0.10, 0.55, 0.03, 0.02, 0.30], 0.9, [0, 1, 4]),
        ([0.06, 0.04, 0.71, 0.15, 0.04], 0.9, [0, 2, 3]),
        ([0.6, 0.3, 0.1], 0.9, [0, 1]),  # 0.6 + 0.3 is below 0.9 in floating point
        ([0.25, 0.25, 0.25, 0.25], 0.5, [0, 1]),  # equal scores: the lower slots
        ([0.1, 0.4, 0.1, 0.4], 0.85, [0, 1, 3]),
        ([0.9, 0.1], 1e-7, [0]),  # one slot at least
        ([0.5, 0.3, 0.2, 0.0], 1.0, [0, 1, 2]),  # nothing is left for the last one
        ([0.5, 0.3, 0.1999, 0.0], 1.0, [0, 1, 2]),  # nor where rounding leaves less than p
        ([0.0, 0.0], 0.9, []),
    ],
)
@looped("dtype", [torch.float32, torch.float64])
def test_hits_are_the_fewest_of_the_highest_scores_that_reach_p(scores, p, expected, dtype):
    found = hits(torch.tensor(scores, dtype=dtype), p)
    assert found.nonzero().flatten().tolist() == expected


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_scores_of_half_precision_are_summed_in_float32(dtype):
    """A sum of a thousand in bfloat16 stops growing long before its end."""
    scores = torch.full((1000,), 1 / 1000, dtype=dtype)
    assert hits(scores, 0.5).tolist() == hit_by_hand(scores.tolist(), 0.5)


def evicting(rows, crf, last, p, decay, budget):
    """Positions kept and effective values after each row of (new position, time, scores); plain Algorithm 1
    around `lrfu`, where a new token begins with a crf of 1 at its own time.
    """
    here = list(range(len(crf)))
    crf, last = torch.tensor(crf, dtype=torch.float64), torch.tensor(last)
    for new, t, scores in rows:
        here = [*here, new]
        crf = torch.cat([crf, torch.zeros(1, dtype=torch.float64)])
        last = torch.cat([last, torch.tensor([t])])
        found = lrfu(torch.tensor(scores, dtype=torch.float64), crf, last, t, p, decay)
        crf, last, effective = (part.clone() for part in found)
        crf[-1] = effective[-1] = 1.0
        last[-1] = t
        keep = sorted(range(len(here)), key=lambda slot: (-float(effective[slot]), slot))[:budget]
        values = dict(zip(here, effective.tolist(), strict=True))
        here, crf, last = [here[s] for s in sorted(keep)], crf[sorted(keep)], last[sorted(keep)]
        yield here, values


def test_three_evictions_by_hand():
    """Five slots for a budget of four; p 0.9, decay 0.6."""
    rows = [
        (4, 5, [0.61, 0.02, 0.04, 0.03, 0.30]),
        (5, 6, [0.10, 0.55, 0.03, 0.02, 0.30]),
        (6, 7, [0.06, 0.04, 0.71, 0.15, 0.04]),
    ]
    first, second, third = evicting(rows, [1.0] * 4, [1, 2, 3, 4], 0.9, 0.6, 4)
    assert first[1] == pytest.approx({0: 1.1296, 1: 0.216, 2: 0.36, 3: 0.6, 4: 1})
    assert first[0] == [0, 2, 3, 4]
    assert second[1] == pytest.approx({0: 1.67776, 2: 1.216, 3: 0.36, 4: 0.6, 5: 1})
    assert second[0] == [0, 2, 4, 5]
    assert third[1] == pytest.approx({0: 2.006656, 2: 0.7296, 4: 1.36, 5: 1.6, 6: 1})
    assert third[0] == [0, 4, 5, 6]


def test_a_miss_is_ranked_lower_and_recorded_as_it_was():
    found = lrfu(torch.tensor([0.95, 0.05]), torch.tensor([2.0, 2.0]), torch.tensor([3, 3]), 5, 0.9, 0.5)
    assert isinstance(found, ReferenceUpdate)
    assert found.crf.tolist() == [1.5, 2.0]
    assert found.last.tolist() == [5, 3]
    assert found.effective.tolist() == [1.5, 0.5]


def histories(random: torch.Generator, slots: int, rows: int):
    """Rows of attention of which each slot is hit by about a third, as scores that p = 0.9 tells apart."""
    hit = torch.rand(rows, slots, generator=random) < 0.35
    hit[:, 0] |= ~hit.any(-1)
    scores = torch.where(hit, 0.95 / hit.sum(-1, keepdim=True), 0.05 / (~hit).sum(-1, keepdim=True).clamp(1))
    return hit, scores.double()


@looped("decay", [0.0, 0.1, 0.5, 0.6, 0.7, 1.0])
def test_the_increments_add_up_to_the_sum_over_all_references(decay):
    """CRF(t) is the sum of decay^(t - t_j), in exact fractions; decay^0 is 1, whatever the decay."""
    random, exact = torch.Generator().manual_seed(2), Fraction(str(decay))
    hit, scores = histories(random, 6, 25)
    crf, last = torch.ones(6, dtype=torch.float64), torch.zeros(6, dtype=torch.int64)
    for t, row in enumerate(scores, 1):
        crf, last, effective = lrfu(row, crf, last, t, 0.9, decay)
        times = [[0, *(j for j in range(1, t + 1) if hit[j - 1, slot])] for slot in range(6)]
        expected = [sum(exact ** (t - time) for time in own) for own in times]
        assert effective.tolist() == pytest.approx([float(value) for value in expected])
        assert last.tolist() == [own[-1] for own in times]


def test_utilisation_decides_what_a_layer_and_a_head_get():
    """Budgets of 16: utilisation of the layers 7/32 and 4/32, of the heads 5:2 and 3:1."""
    found = adaptive_budget(torch.tensor([[5.0, 2.0], [3.0, 1.0]]), torch.full((2, 2), 16), 64)
    assert found.dtype == torch.float64
    expected = [[64 * 7 / 11 * 5 / 7, 64 * 7 / 11 * 2 / 7], [64 * 4 / 11 * 3 / 4, 64 * 4 / 11 / 4]]
    assert found.flatten().tolist() == pytest.approx([29.090909, 11.636364, 17.454545, 5.818182])
    assert found.tolist() == [pytest.approx(row) for row in expected]


def test_the_map_alternates_where_crf_does_not_follow_the_budget():
    """Every second application gives back the first budgets; the fixed point is the square root of crf."""
    crf, budget = torch.tensor([[6.0, 2.0], [3.0, 1.0]]), torch.full((2, 2), 16)
    tilted, again = [32, 32 / 3, 16, 16 / 3], [16.0] * 4
    for expected in (tilted, again, tilted, again):
        budget = adaptive_budget(crf, budget, 64)
        assert budget.flatten().tolist() == pytest.approx(expected)


def test_without_any_crf_budgets_stay_and_without_some_of_it_they_are_nought():
    budget = torch.tensor([[20, 12], [30, 2]])
    assert adaptive_budget(torch.zeros(2, 2), budget, 64).tolist() == budget.tolist()
    idle = adaptive_budget(torch.tensor([[0.0, 0.0], [1.0, 0.0]]), budget, 64)
    assert idle.tolist() == [[0, 0], [64, 0]]
    assert adaptive_budget(torch.tensor([[0.0, 0.0], [2.0, 0.0]]), idle, 64).tolist() == [[0, 0], [64, 0]]
    with pytest.raises(ValueError, match="budget must be above 0 for every head whose crf is"):
        adaptive_budget(torch.tensor([[1.0, 0.0], [1.0, 0.0]]), idle, 64)


def test_whole_budgets_go_by_largest_remainder():
    none = torch.zeros(2, 2, dtype=torch.int64)
    real = torch.tensor([[29.0909, 11.6364], [17.4545, 5.8182]])
    assert round_budgets(real, 64, none).tolist() == [[29, 12], [17, 6]]
    assert round_budgets(torch.full((2, 2), 16.5), 66, none).tolist() == [[17, 17], [16, 16]]
    assert round_budgets(real / 3, 64, none).tolist() == [[29, 12], [17, 6]]


def test_nothing_is_not_split_in_proportion():
    with pytest.raises(ValueError, match="budget must be above 0 for some head"):
        round_budgets(torch.zeros(2, 2), 8, torch.ones(2, 2, dtype=torch.int64))


def test_no_whole_budget_is_below_its_least_and_the_others_pay_in_proportion():
    """Of 80, two heads get 16 each; the other 48 are shared 2:1, and not 44:22 less 9 each."""
    real = torch.tensor([[44.0, 22.0], [7.0, 7.0]])
    assert round_budgets(real, 80, torch.full((2, 2), 16)).tolist() == [[32, 16], [16, 16]]
    assert round_budgets(real, 64, torch.full((2, 2), 16)).tolist() == [[16, 16], [16, 16]]
    assert round_budgets(torch.tensor([[64.0, 0.0]]), 64, torch.tensor([[1, 40]])).tolist() == [[24, 40]]


def test_whole_budgets_keep_the_sum_whatever_the_numbers():
    random = torch.Generator().manual_seed(4)
    for _ in range(50):
        real = torch.rand(4, 3, generator=random, dtype=torch.float64) ** 6
        least = torch.randint(0, 17, (4, 3), generator=random)
        found = round_budgets(real, 200, least)
        assert found.dtype == torch.int64
        assert int(found.sum()) == 200
        assert (found >= least).all()


def rows_of(attention, start, total, *, decoded):
    """Rows of a single layer with two KV heads."""
    return AttentionRows(attention, 0, start, total, kv_heads=2, decoded=decoded)


def test_of_a_prompt_its_end_counts_and_the_last_row_hits():
    """Tokens 0 and 2 are hit by the last of four rows, token 1 is not, token 3 is the row's own."""
    attention = torch.zeros(4, 4, 4)
    attention[:, :3, 1] = 1
    attention[:, 3] = torch.tensor([0.5, 0.02, 0.4, 0.08])
    signal = References(0.85, 0.5)
    state = signal.attend(rows_of(attention, 0, 4, decoded=False), None)
    assert state.crf.tolist() == [[1.5, 1, 1.5, 1]] * 2
    assert state.last.tolist() == [[4, 3, 4, 4]] * 2
    assert (state.crf.dtype, state.last.dtype) == (torch.float32, torch.int32)


def test_a_row_of_a_head_is_the_mean_over_its_query_heads():
    """Alone, each query head would hit another slot; together they take 0.8 of the row."""
    row = torch.tensor([[0.9, 0.1, 0], [0.1, 0.7, 0.2], [0, 0, 1.0], [0, 0, 1.0]])
    state = References(0.8, 0.5).attend(rows_of(row[:, None], 2, 3, decoded=False), None)
    assert state.last.tolist() == [[3, 3, 3], [2, 2, 3]]
    assert state.crf.tolist() == [[1.5, 1.5, 1], [1, 1, 1]]


def test_a_new_token_begins_in_each_head_after_the_slots_that_it_holds():
    """Head 0 holds three slots and head 1 one; what a head does not hold stays nothing, whatever p."""
    crf, last = torch.tensor([[1.0, 2, 1], [1, 0, 0]]), torch.tensor([[4, 5, 2], [5, 0, 0]]).int()
    row = torch.tensor([[0.1, 0.8, 0, 0.1]] * 2 + [[0.3, 0.7, 0, 0]] * 2)[:, None]
    state = References(1.0, 0.5).attend(rows_of(row, 6, 7, decoded=True), Reference(crf, last))
    assert state.crf.tolist() == [[1 + 0.5**3, 2 * 0.5**2 + 1, 1, 1], [1 + 0.5**2, 1, 0, 0]]
    assert state.last.tolist() == [[7, 7, 2, 7], [7, 7, 0, 0]]


def test_what_attention_left_long_ago_is_still_ranked():
    """0.5^150 and 0.5^151 are 0 in float32; their logarithms are one ln 2 apart."""
    crf, last = torch.ones(3), torch.tensor([50, 49, 200]).int()
    assert (0.5 ** (200 - last).float()).tolist() == [0, 0, 1]
    found = log_crf(crf, last, 200, 0.5)
    assert found.tolist() == pytest.approx([-150 * 0.6931471805599453, -151 * 0.6931471805599453, 0])
    assert log_crf(torch.tensor([1.5]), torch.tensor([7]), 9, 0.6).exp().tolist() == pytest.approx([0.54])


def test_without_decay_hits_are_counted_and_without_memory_every_miss_ties():
    crf, last = torch.tensor([3.0, 5.0, 1.0]), torch.tensor([10, 2, 12]).int()
    assert log_crf(crf, last, 12, 1.0).exp().tolist() == pytest.approx([3, 5, 1])
    forgotten = log_crf(crf, last, 12, 0.0)
    assert forgotten.isfinite().all()
    assert forgotten[0] == forgotten[1] < forgotten[2] == 0


def held_view(now, routed=None):
    """Two layers of one head that hold six slots each."""
    return View(torch.arange(now), 2, 1, frozenset(), 0, {}, torch.arange(6).expand(2, 1, 6), routing_state=routed)


CRF = torch.tensor([[[8.0, 4, 2, 1, 1, 0.5]], [[1, 0.5, 0.25, 0.25, 0.5, 0.25]]])
NOTHING = torch.zeros(2, 1, 6, dtype=torch.bool)


def granted(now, routed=None, *, budget=4, protected=NOTHING, least=1):
    """crf 16.5 of the first layer and 2.75 of the second: six to one."""
    routing = Utilised(period=10, least=least)
    return routing.allocate(held_view(now, routed), Scores(CRF.log()), protected, budget)


def test_budgets_begin_equal_and_move_after_a_period():
    first = granted(20)
    assert first.counts.tolist() == [[4], [4]]
    assert (first.routing_state.slots.tolist(), int(first.routing_state.since)) == ([[4], [4]], 20)
    for now in (20, 29):
        again = granted(now, first.routing_state)
        assert (again.routing_state.slots.tolist(), int(again.routing_state.since)) == ([[4], [4]], 20)
    moved = granted(30, first.routing_state)
    # 8 * 6/7 = 6.86 and 8 * 1/7 = 1.14; a head of six slots cannot keep seven.
    assert (moved.routing_state.slots.tolist(), int(moved.routing_state.since)) == ([[7], [1]], 30)
    assert moved.counts.tolist() == [[6], [1]]
    assert moved.counts.dtype == torch.int64
    # Utilisation of 16.5 / 7 against 2.75 / 1: 8 * 0.4615 and 8 * 0.5385.
    assert granted(40, moved.routing_state).routing_state.slots.tolist() == [[4], [4]]


def test_no_head_gets_less_than_the_floor_or_than_it_protects():
    before = Budgets(torch.full((2, 1), 4), torch.tensor(20))
    assert granted(30, before, least=3).routing_state.slots.tolist() == [[5], [3]]
    assert granted(30, before, least=16).routing_state.slots.tolist() == [[4], [4]]
    protected = torch.tensor([True, False, False, False, False, True]).view(1, 1, 6)
    assert granted(30, before, protected=protected).routing_state.slots.tolist() == [[6], [2]]


def test_a_budget_that_changes_is_shared_as_the_last_one_was():
    moved = Budgets(torch.tensor([[6], [2]]), torch.tensor(20))
    assert granted(24, moved, budget=2).routing_state.slots.tolist() == [[3], [1]]
    assert granted(24, moved, budget=4).routing_state.slots.tolist() == [[6], [2]]


def test_slots_that_are_not_there_have_no_use():
    scores = CRF.log().masked_fill(torch.tensor([False] * 3 + [True] * 3), -torch.inf)
    before = Budgets(torch.full((2, 1), 4), torch.tensor(20))
    moved = Utilised(period=10, least=1).allocate(held_view(30, before), Scores(scores), NOTHING, 4)
    # 14 against 1.75, 8 to 1: 7.11 and 0.89 slots.
    assert moved.routing_state.slots.tolist() == [[7], [1]]
    assert moved.counts.tolist() == [[3], [1]]


def test_the_two_policies_differ_in_their_routing_alone():
    lite, whole = policies.get("crystal-kv-lite"), policies.get("crystal-kv")
    assert policies.diff(lite, whole) == {"routing": (PerHead(), Utilised(period=128, least=16))}
    assert lite.scoring == Recency(p=0.9, decay=0.6)
    assert lite.protect == Protect(sinks=0, recent=0)
    assert Utilised.bounds
    assert not PerHead.bounds
