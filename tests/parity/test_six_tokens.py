"""Six tokens by hand, where kvpress has another rule or none: chunks, counts of heads, a decoded token."""

import pytest
import torch
from six_tokens import SIX_TOKENS, slots_of
from torch import Tensor

from policies import AttentionRows, Policy, View
from policies.adakv import ada_snapkv
from policies.chunkkv import chunkkv
from policies.h2o import h2o
from policies.signals import AttentionSums

WINDOW = SIX_TOKENS[:, 4:].sum(1)
"""[q_head, slot], of the last two rows: .5 .15 .35 .45 and .7 .3 .2 .3 before them."""


def kept(policy: Policy, budget: int, sums: Tensor, kv_heads: int) -> list[list[int]]:
    (signal,) = policy.needs
    view = View(torch.arange(6), 1, kv_heads, frozenset(), 0, {signal: (sums,)})
    return slots_of(policy.keep(view, budget)[0])


@pytest.mark.parametrize("kv_heads", [1, 2])
def test_chunks_of_two_rank_by_the_mean_of_both_heads(kv_heads):
    # Means of the window .3 .1125 .1375 .1875: chunks .2062 and .1625.
    assert kept(chunkkv(size=2, window=2), 4, WINDOW, kv_heads) == [[0, 1, 4, 5]] * kv_heads


def test_chunks_rank_by_the_window_and_not_by_all_rows():
    # Column sums of all rows are 3.3 .8 .7 .8 before the window, which would take the first chunk.
    rows = ["1", ".8 .2", ".6 .2 .2", ".5 .2 .1 .2", ".2 .1 .3 .3 .1", ".2 .1 .1 .3 .1 .2"]
    attention = torch.tensor([[[float(x) for x in (row + " 0" * 6).split()[:6]] for row in rows]])
    assert attention.sum(1)[0, :4].tolist() == pytest.approx([3.3, 0.8, 0.7, 0.8])
    (signal,) = chunkkv(size=2, window=2).needs
    sums = signal.attend(AttentionRows(attention, 0, 0, 6, 1), None)
    assert kept(chunkkv(size=2, window=2), 4, sums, 1) == [[2, 3, 4, 5]]


@pytest.mark.parametrize("floor", [0.0, 0.2])
def test_the_four_highest_of_two_heads_are_three_of_the_first_and_one_of_the_second(floor):
    # .7 .5 .45 .35. With a floor of .2 the shares are 2.8 and 1.2, which the authors' rounding makes 2 and 1.
    policy = ada_snapkv(window=2, kernel=1, floor=floor)
    assert kept(policy, 4, WINDOW, 2) == [[0, 2, 3, 4, 5], [0, 4, 5]]


@pytest.mark.parametrize(
    ("floor", "first", "second"),
    [(0.0, [0, 1, 2, 3], []), (0.2, [0, 1, 2, 3], []), (0.5, [0, 1, 2], [1]), (1.0, [0, 1], [0, 1])],
)
def test_a_head_without_high_scores_gets_its_floor(floor, first, second):
    # Shares of the second head: 0 .4 1 2.
    sums = torch.tensor([[0.9, 0.8, 0.7, 0.6, 0, 0], [0.1, 0.2, 0.05, 0.02, 0, 0]])
    policy = ada_snapkv(window=2, kernel=1, floor=floor)
    assert kept(policy, 4, sums, 2) == [[*first, 4, 5], [*second, 4, 5]]


def test_h2o_drops_one_slot_once_a_token_is_decoded():
    # Of slots 0 1 4 5 and the new 6: 3.0 .95 .25 .3 and a row .1 .2 .1 .3 .3 make 3.1 1.15 .35 .6 .3.
    signal = AttentionSums()
    before = SIX_TOKENS[:1].sum(1)[None, :, [0, 1, 4, 5]]
    row = torch.tensor([[[[0.1, 0.2, 0.1, 0.3, 0.3]]]])
    sums = signal.attend(AttentionRows(row, 0, 6, 7, 1), before)
    assert sums.flatten().tolist() == pytest.approx([3.1, 1.15, 0.35, 0.6, 0.3])
    stored = torch.tensor([[[0, 1, 4, 5, 6]]])
    view = View(torch.arange(7), 1, 1, frozenset(), 0, {signal: tuple(sums)}, stored)
    mask = h2o().keep(view, 4)
    assert stored[mask].tolist() == [0, 1, 5, 6]
