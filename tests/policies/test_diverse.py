"""The set-conditioned selector against Algorithm 1 written plainly, and against a count by hand."""

import pytest
import torch
from looped import looped
from plain_selector import plain_diverse
from policy_prompts import MadeTensors, a_prompt, a_view

import policies
from policies import Diverse, PerHead, Protect, TopK
from policies.selection import WINDOW, select_diverse, signature

SCORES = torch.tensor([5, 4.9, 4.75, 4.7, 1.0], dtype=torch.float64)
SIGNATURES = torch.tensor([[1, 0], [1, 0], [0.8, 0.6], [0, 1], [-1, 0]], dtype=torch.float64)
WEIGHTS = (0, 0.05, 0.5, 1, 1.5)
every_weight = looped("weight", WEIGHTS)


@looped("select", [select_diverse, plain_diverse])
@looped(
    ("weight", "k", "kept"),
    [(0, 3, [0, 1, 2]), (0.05, 3, [0, 1, 2]), (0.5, 3, [0, 1, 3]), (1, 3, [0, 2, 3]), (0.5, 4, [0, 1, 2, 3])],
)
def test_five_slots_worked_out_by_hand(select, weight, k, kept):
    assert select(SCORES, SIGNATURES, k, weight).tolist() == kept


def test_a_slot_that_points_against_the_kept_ones_earns_no_bonus():
    """The last slot of the example stays at its score of 1, below the 1.1 of one that is like the kept."""
    scores = torch.tensor([5, 1.6, 1.0], dtype=torch.float64)
    signatures = torch.tensor([[1, 0], [1, 0], [-1, 0]], dtype=torch.float64)
    assert select_diverse(scores, signatures, 2, 0.5).tolist() == [0, 1]
    assert select_diverse(scores, signatures, 2, 0.61).tolist() == [0, 2]


def drawn(n, d, kind, seed, dtype=torch.float64):
    """Scores and signatures."""
    random = torch.Generator().manual_seed(seed)
    scores = 3 + 0.3 * torch.randn(n, generator=random, dtype=dtype)
    values = torch.randn(n, d, generator=random, dtype=dtype)
    if kind == "alike":
        values += 3
    elif kind == "opposite":
        values[1::2] = -values[: n // 2]
    elif kind == "clusters":
        centres = torch.randn(7, d, generator=random, dtype=dtype)
        values = centres[torch.randint(7, (n,), generator=random)] + 0.2 * values
    return scores, values / values.norm(dim=-1, keepdim=True)


@every_weight
@looped("kind", ["random", "alike", "opposite", "clusters"])
def test_random_tensors_keep_what_algorithm_1_keeps(kind, weight):
    for seed, (n, d, k) in enumerate([(1, 2, 1), (7, 2, 3), (40, 4, 39), (90, 16, 30), (160, 32, 64)]):
        scores, signatures = drawn(n, d, kind, seed)
        assert torch.equal(select_diverse(scores, signatures, k, weight), plain_diverse(scores, signatures, k, weight))


@every_weight
@looped("kind", ["random", "alike", "opposite", "clusters"])
def test_what_does_not_fit_the_window_keeps_what_algorithm_1_keeps(kind, weight):
    n = 2 * WINDOW + 77
    scores, signatures = drawn(n, 8, kind, seed=9)
    for k in (3, WINDOW + 50):
        assert torch.equal(select_diverse(scores, signatures, k, weight), plain_diverse(scores, signatures, k, weight))


@every_weight
def test_float32_keeps_the_same_slots_but_for_gains_that_are_all_but_equal(weight):
    scores, signatures = drawn(800, 32, "clusters", seed=4, dtype=torch.float32)
    found = select_diverse(scores, signatures, 300, weight)
    exact = plain_diverse(scores.double(), signatures.double(), 300, weight)
    other = sorted(set(found.tolist()) ^ set(exact.tolist()))
    kept = [slot for slot in found.tolist() if slot in exact.tolist()]
    gains = scores - weight * (signatures @ signatures[kept].T).clamp(min=0).amax(-1)
    assert len(other) == 0 or float(gains[other].max() - gains[other].min()) < 1e-6


# Of halves and integers, so that every cosine is exact in whatever order it is summed.
SQUARE = torch.tensor([[1.0, 0], [0, 1], [-1, 0], [0, -1]])


@every_weight
@looped("dtype", [torch.float32, torch.float64])
def test_duplicates_and_ties_go_to_the_lowest_slot_as_in_algorithm_1(weight, dtype):
    random = torch.Generator().manual_seed(2)
    for n in (9, 60, WINDOW + 300):
        signatures = SQUARE[torch.randint(4, (n,), generator=random)].to(dtype)
        scores = torch.randint(3, (n,), generator=random).to(dtype)
        for k in (1, n // 3, n - 1):
            expected = plain_diverse(scores, signatures, k, weight)
            assert torch.equal(select_diverse(scores, signatures, k, weight), expected)


@every_weight
def test_slots_that_are_all_the_same_are_kept_from_the_first(weight):
    n = WINDOW + 100
    assert select_diverse(torch.ones(n), torch.ones(n, 4) / 2, 60, weight).tolist() == list(range(60))


@pytest.mark.parametrize("k", [5, 6, 100])
def test_a_budget_that_covers_everything_keeps_everything(k):
    assert select_diverse(SCORES, SIGNATURES, k, 0.5).tolist() == [0, 1, 2, 3, 4]


@every_weight
@looped("n", [60, WINDOW + 300])
def test_a_head_that_may_keep_nothing_keeps_nothing(n, weight):
    scores, signatures = drawn(n, 6, "random", seed=5)
    alone = select_diverse(scores, signatures, 0, weight)
    assert (alone.dtype, alone.shape) == (torch.int64, (0,))
    together = select_diverse(scores.expand(3, n), signatures.expand(3, n, 6), 0, weight)
    assert (together.dtype, together.shape) == (torch.int64, (3, 0))


@every_weight
@looped("n", [60, WINDOW + 300])
def test_held_slots_are_kept_before_the_first_pick(n, weight):
    """As Algorithm 1 would keep them if their scores were above all others."""
    scores, signatures = drawn(n, 6, "random", seed=5)
    held = torch.zeros(n, dtype=torch.bool)
    held[[2, n - 3, n - 1]] = True
    raised = scores + 100 * held
    found = select_diverse(scores, signatures, 20, weight, preselected=held)
    assert torch.equal(found, plain_diverse(raised, signatures, 20, weight))
    assert select_diverse(scores, signatures, 3, weight, preselected=held).tolist() == [2, n - 3, n - 1]


def test_no_matrix_of_all_slots_is_formed(monkeypatch):
    """The largest tensor that the selector makes has WINDOW rows, not n."""
    n, k = 4 * WINDOW, WINDOW
    scores, signatures = drawn(n, 4, "random", seed=6)
    with MadeTensors() as made:
        found = select_diverse(scores, signatures, k, 0.5)
    assert torch.equal(found, plain_diverse(scores, signatures, k, 0.5))
    assert max(made.sizes) <= WINDOW * n < n * n / 3


def test_a_signature_is_the_direction_of_the_mean_value_over_layers_and_heads():
    values = torch.tensor([[[1.0, 0], [0, 0]], [[2, 0], [0, 4]]])[:, :, None]
    torch.testing.assert_close(signature(values), torch.tensor([[0.6, 0.8]]))
    assert signature(torch.zeros(2, 2, 3, 4)).tolist() == [[0.0] * 4] * 3


def test_the_policy_gives_the_selector_its_scores_and_the_signatures_of_its_values():
    prompt, policy = a_prompt(90, layers=3), policies.get("1d_div")
    view = a_view(prompt, [policy])
    scores = policy.scoring.score(view).slots[0, 0]
    kept = policy.keep(view, 40)
    expected = plain_diverse(scores.double(), signature(prompt.values.double()), 40, 0.5)
    assert kept[2, 1].nonzero().flatten().tolist() == expected.tolist()
    assert torch.equal(kept, kept[:1, :1].expand_as(kept))
    assert not torch.equal(kept, policies.get("1d").keep(view, 40))


def test_without_a_penalty_the_policy_is_its_parent_slot_for_slot():
    prompt = a_prompt(200)
    view = a_view(prompt, [policies.get("1d_div")])
    for protect in (Protect(0, 0), Protect(3, 20)):
        parent = policies.get("1d", protect=protect)
        child = policies.get("1d", protect=protect, selection=Diverse(0))
        for budget in (23, 64, 150):
            assert torch.equal(parent.keep(view, budget), child.keep(view, budget))


def test_protected_slots_are_kept_and_push_away_what_is_like_them():
    prompt = a_prompt(60)
    policy = policies.get("1d_div-1.5", protect=Protect(sinks=2, recent=5))
    view = a_view(prompt, [policy])
    protected = policy.protect.slots(view.filled, 20, decoding=False)[0, 0]
    scores = policy.scoring.score(view).slots[0, 0]
    expected = select_diverse(scores, signature(prompt.values), 20, 1.5, preselected=protected)
    assert policy.keep(view, 20)[0, 0].nonzero().flatten().tolist() == expected.tolist()
    assert protected[expected].sum() == 7


def test_one_keep_set_a_head_is_refused():
    policy = policies.get("1d_div", scoring=policies.get("knorm").scoring, routing=PerHead())
    with pytest.raises(ValueError, match="one set for all layers and heads; choose Shared"):
        policy.keep(a_view(a_prompt(40), [policy]), 20)


def test_a_selection_that_reads_more_than_scores_says_so():
    assert policies.get("1d_div").needs == policies.get("1d").needs | Diverse().needs
    assert TopK().needs == frozenset()


def test_a_tie_with_a_slot_outside_the_window_goes_to_the_lower_slot():
    """Once slot 10 is kept, the slots like it fall from 2 to 1, which is what slots 0 to 9 add as well."""
    n = WINDOW + 10
    scores = torch.full((n,), 2.0)
    signatures = SQUARE[:1].repeat(n, 1)
    scores[:10], signatures[:10] = 1.0, SQUARE[1]
    assert select_diverse(scores, signatures, 2, 1.0).tolist() == [0, 10]
    assert plain_diverse(scores, signatures, 2, 1.0).tolist() == [0, 10]
