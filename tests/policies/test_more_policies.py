"""TOVA, key norm, KeyDiff, PyramidKV, ChunkKV, Ada-KV and Scissorhands, by hand or by a plain loop."""

import math

import pytest
import torch
from looped import looped
from policy_prompts import a_prompt, a_view, measured, plain_attention

import policies
from policies import AttentionRows, PerHead, Policy, Protect, Scores, View
from policies.adakv import ada_snapkv
from policies.chunkkv import chunkkv
from policies.keydiff import MeanKeyCosine, keydiff
from policies.knorm import knorm
from policies.pyramidkv import pyramidkv
from policies.routing import Adaptive, PerLayer, Pyramid, round_counts
from policies.scissorhands import NeglectCounts, NeglectState, scissorhands
from policies.selection import Chunks
from policies.signals import Norms
from policies.snapkv import snapkv
from policies.tova import tova

LAST_ROWS = torch.tensor([[0.2, 0.05, 0.3, 0.1, 0.05, 0.3], [0.3, 0.1, 0.1, 0.2, 0.1, 0.2]])
KEYS = torch.tensor([[[1.0, 0], [3, 4], [0, 2], [1, 1], [2, 1], [0, 3]]])
EVERY_SLOT = torch.ones(1, 6, dtype=torch.bool)


def kept(policy: Policy, budget: int, state: object, *, n: int = 6, kv_heads: int = 1) -> list[list[int]]:
    """Kept slots of each KV head of one layer, given the state of the policy's signal."""
    (signal,) = policy.needs
    view = View(torch.arange(n), 1, kv_heads, frozenset(), 0, {signal: (state,)})
    return slots_of(policy.keep(view, budget)[0])


def slots_of(mask: torch.Tensor) -> list[list[int]]:
    return [row.nonzero().flatten().tolist() for row in mask]


# TOVA


def test_tova_keeps_what_the_last_row_attends_to_on_average():
    # Mean of the two heads: .25 .075 .2 .15 .075 .25.
    assert kept(tova(), 4, LAST_ROWS) == [[0, 2, 3, 5]]
    assert kept(tova(), 2, LAST_ROWS) == [[0, 5]]
    assert kept(tova(), 4, LAST_ROWS, kv_heads=2) == [[0, 2, 3, 5]] * 2


def test_tova_does_not_protect_the_last_slot():
    row = torch.tensor([[0.4, 0.3, 0.2, 0.1]])
    assert kept(tova(), 3, row, n=4) == [[0, 1, 2]]


def test_heads_of_a_layer_share_a_set_and_layers_do_not():
    prompt = a_prompt(200, layers=3)
    for name in ("tova", "chunkkv"):
        policy = policies.get(name)
        mask = policy.keep(a_view(prompt, [policy]), 100)
        assert torch.equal(mask[:, 0], mask[:, 1])
        assert not torch.equal(mask[0], mask[1])
        alone = policies.get(name, routing=PerHead()).keep(a_view(prompt, [policy]), 100)
        assert not torch.equal(alone[:, 0], alone[:, 1])


# Key norm and KeyDiff


def test_knorm_keeps_the_shortest_keys():
    # Norms 1 5 2 1.414 2.236 3.
    norms = Norms().summarise(0, KEYS, KEYS, EVERY_SLOT)
    assert kept(knorm(), 3, norms) == [[0, 2, 3]]


def test_keydiff_keeps_the_keys_least_like_the_mean():
    cosine = MeanKeyCosine().summarise(0, KEYS, KEYS, EVERY_SLOT)
    expected = [0.6292, 0.9993, 0.7772, 0.9945, 0.9104, 0.7772]
    assert cosine[0].tolist() == pytest.approx(expected, abs=1e-4)
    assert kept(keydiff(), 3, cosine) == [[0, 2, 5]]


def test_keydiff_takes_its_mean_over_filled_slots_only():
    leftover = torch.tensor([[[-9.0, 1], [torch.nan, 0]]])
    filled = torch.tensor([[True] * 6 + [False] * 2])
    longer = torch.cat([KEYS, leftover], 1)
    cosine = MeanKeyCosine().summarise(0, longer, longer, filled)[:, :6]
    assert torch.equal(cosine, MeanKeyCosine().summarise(0, KEYS, KEYS, EVERY_SLOT))


def test_a_key_of_length_zero_is_neither_like_nor_unlike():
    keys = torch.cat([KEYS, torch.zeros(1, 1, 2)], 1)
    filled = torch.ones(1, 7, dtype=torch.bool)
    assert MeanKeyCosine().summarise(0, keys, keys, filled)[0, 6] == 0


# PyramidKV


def window_of(count: int, n: int) -> torch.Tensor:
    """Protected slots: the last `count` of n."""
    return (torch.arange(n) >= n - count).view(1, 1, n)


@looped(
    ("budget", "window", "n", "layers", "expected"),
    [
        # 8 scored slots on average; 0.4 in the last layer, 15.6 in the first: 17.6 12.53 7.47 2.4 in all.
        (10, 2, 64, 4, [18, 13, 7, 2]),
        # The first layer would get 15.6 of the 14 that there are: 14 10 6 2 beside the window.
        (10, 2, 16, 4, [16, 12, 8, 4]),
        (10, 10, 64, 4, [10, 10, 10, 10]),
        (63, 2, 64, 3, [64, 63, 62]),
        (10, 2, 64, 1, [10]),
        (22, 2, 64, 2, [41, 3]),
    ],
)
def test_budgets_of_a_pyramid(budget, window, n, layers, expected):
    allocation = Pyramid(beta=20).counts(torch.zeros(layers, 2, n), window_of(window, n), budget)
    assert allocation.tolist() == [[slots] * 2 for slots in expected]


def authors_pyramid(budget: int, window: int, n: int, layers: int, beta: int = 20) -> tuple[int, int]:
    """First and last layer in PyramidKVCluster.update_kv, Zefan-Cai/KVCache-Factory @ c97f9d7."""
    lowest = (budget - window) // beta
    most = (budget - window) * 2 - lowest
    if most >= n - window:
        most = n - window
        lowest = (budget - window) * 2 - most
    steps = (most - lowest) // (layers - 1)
    return most + window, most - steps * (layers - 1) + window


@looped("budget", [128, 512, 1024, 2048])
@looped(("n", "layers"), [(4096, 32), (8192, 30), (4096, 2)])
def test_a_pyramid_begins_and_ends_as_in_the_authors_code(budget, n, layers):
    counts = Pyramid().counts(torch.zeros(layers, 1, n), window_of(32, n), budget)[:, 0].tolist()
    first, last = authors_pyramid(budget, 32, n, layers)
    assert abs(counts[0] - first) <= 1
    # Their integer steps are too short, so that the last layer keeps up to layers - 1 slots more.
    assert last - (layers - 1) - 1 <= counts[-1] <= last + 1


@looped("n", [40, 97, 300])
@looped("layers", [2, 5, 30])
def test_pyramids_are_exact_falling_and_within_what_a_layer_holds(n, layers):
    for budget in range(33, n, 7):
        counts = Pyramid().counts(torch.zeros(layers, 1, n), window_of(32, n), budget)[:, 0].tolist()
        assert sum(counts) == budget * layers
        assert counts == sorted(counts, reverse=True)
        assert max(counts) <= n
        assert min(counts) >= 32


def test_a_pyramid_gives_the_next_layers_what_a_layer_does_not_hold():
    slots = torch.zeros(4, 2, 64)
    slots[0, 1, 12:] = -torch.inf
    # 17.6 12.53 7.47 2.4 with 12 for the first: 1.867 more for each of the others.
    allocation = Pyramid().counts(slots, window_of(2, 64), 10)
    assert allocation[:, 0].tolist() == [12, 15, 9, 4]
    assert torch.equal(allocation[:, 0], allocation[:, 1])


def test_a_pyramid_with_beta_1_is_snapkv():
    prompt = a_prompt(150, layers=3)
    view = a_view(prompt, [snapkv()])
    assert torch.equal(pyramidkv(beta=1).keep(view, 60), snapkv().keep(view, 60))


# ChunkKV


def test_chunkkv_keeps_the_chunk_that_the_window_attends_to():
    # Sums of the last two rows; chunks of the four slots before them .6 and 1.
    sums = torch.tensor([[0.4, 0.2, 0.4, 0.6, 0.2, 0.2]])
    policy = chunkkv(size=2, window=2)
    assert kept(policy, 4, sums) == [[2, 3, 4, 5]]
    assert kept(policy, 5, sums) == [[0, 2, 3, 4, 5]]
    assert kept(policy, 3, sums) == [[3, 4, 5]]


def chosen_chunks(scores: list[float], protected: list[bool], size: int, budget: int) -> list[int]:
    """Slots are added one by one, chunk after chunk."""
    free = [i for i, score in enumerate(scores) if not protected[i] and score > -math.inf]
    chunks = {i // size: [j for j in free if j // size == i // size] for i in free}
    mean = {chunk: sum(scores[i] for i in members) / len(members) for chunk, members in chunks.items()}
    kept = [i for i, always in enumerate(protected) if always]
    for chunk in sorted(chunks, key=lambda chunk: (-mean[chunk], chunk)):
        for i in sorted(chunks[chunk], key=lambda i: (-scores[i], i)):
            if len(kept) < budget:
                kept.append(i)
    return sorted(kept)


@looped("size", [1, 2, 3, 10, 50])
@looped("levels", [2, 1000])
def test_chunks_are_taken_whole_in_the_order_of_their_means_and_the_last_is_cut(size, levels):
    """Few levels make ties between chunks and within them. Eighths are added without rounding."""
    random = torch.Generator().manual_seed(size)
    scores = torch.randint(levels, (2, 3, 37), generator=random) / 8
    scores[1, 2, 31:] = -torch.inf
    protected = torch.rand(2, 3, 37, generator=random) < 0.15
    protected &= scores > -torch.inf
    allocation = torch.randint(15, 31, (2, 3), generator=random)
    mask = Chunks(size).select(None, Scores(scores), protected, allocation)
    for layer in range(2):
        for head in range(3):
            row = (scores[layer, head].tolist(), protected[layer, head].tolist())
            expected = chosen_chunks(*row, size, int(allocation[layer, head]))
            assert mask[layer, head].nonzero().flatten().tolist() == expected


def test_the_heads_of_a_layer_choose_their_chunks_by_their_mean():
    sums = torch.tensor([[0.5, 0.5, 0.0, 0.0, 0.3, 0.3, 0, 0], [0.0, 0.0, 0.1, 0.3, 0.3, 0.3, 0, 0]])
    assert kept(chunkkv(size=2, window=2), 4, sums, n=8, kv_heads=2) == [[4, 5, 6, 7]] * 2


# Ada-KV


def ada_counts(*heads: list[float], budget: int, floor: float) -> list[int]:
    slots = torch.tensor([heads])
    return Adaptive(floor).counts(slots, window_of(0, slots.shape[-1]), budget)[0].tolist()


def test_ada_gives_slots_to_the_head_with_the_highest_scores():
    heads = ([0.25, 0.075, 0.175, 0.225], [0.35, 0.15, 0.1, 0.15])
    # The four highest of both heads: three and one.
    assert ada_counts(*heads, budget=2, floor=0.0) == [3, 1]
    # 3 * .8 + .4 = 2.8 and 1 * .8 + .4 = 1.2.
    assert ada_counts(*heads, budget=2, floor=0.2) == [3, 1]
    assert ada_counts(*heads, budget=2, floor=1.0) == [2, 2]
    # 2.5 and 1.5: equal remainders, one slot left.
    assert ada_counts(*heads, budget=2, floor=0.5) == [3, 1]


def test_ada_guarantees_the_floor():
    heads = ([0.9] * 10, [0.1] * 10)
    assert ada_counts(*heads, budget=5, floor=0.0) == [10, 0]
    assert ada_counts(*heads, budget=5, floor=0.2) == [9, 1]
    assert ada_counts(*heads, budget=5, floor=0.6) == [7, 3]


def test_ada_counts_protected_slots_first():
    # Six slots for the layer, of which each head's window has two: the other two go to the first head.
    slots = torch.tensor([[[0.9, 0.8, 0.7, 0.0, 0.0], [0.1, 0.1, 0.1, 0.0, 0.0]]])
    assert Adaptive(0.0).counts(slots, window_of(2, 5), 3).tolist() == [[4, 2]]


@looped("floor", [0.0, 0.2, 0.5, 1.0])
def test_ada_follows_the_authors_mix_within_one_slot(floor):
    """AdaptiveSnapKVCluster, FFY0/AdaKV @ efe4e2e, rounds each head alone."""
    window, n = 8, 90
    scores = torch.rand(5, 4, n, generator=torch.Generator().manual_seed(4))
    scores *= torch.tensor([1.0, 0.8, 0.5, 0.2])[:, None]
    for budget in (9, 20, 51, 80):
        base = budget - window
        counts = Adaptive(floor).counts(scores, window_of(window, n), budget)
        assert counts.sum(-1).tolist() == [4 * budget] * 5
        for layer, row in zip(scores[..., :-window], counts.tolist(), strict=True):
            top = layer.flatten().topk(4 * base).indices // (n - window)
            for head, count in enumerate(row):
                share = int((top == head).sum()) * (1 - floor) + int(base * floor)
                assert abs(count - window - round(share)) <= 1


def test_no_floor_keeps_the_highest_scores_of_the_layer_and_a_whole_floor_is_snapkv():
    prompt = a_prompt(150)
    view = a_view(prompt, [snapkv()])
    assert torch.equal(ada_snapkv(floor=1.0).keep(view, 60), snapkv().keep(view, 60))
    free = ada_snapkv(floor=0.0)
    mask, scores = free.keep(view, 60)[..., :-32], free.scoring.score(view).slots[..., :-32]
    for layer in range(2):
        assert scores[layer][mask[layer]].min() >= scores[layer][~mask[layer]].max()
    assert len(set(mask.sum(-1).flatten().tolist())) > 1


def test_a_head_that_holds_little_keeps_all_of_it_and_the_others_get_the_rest():
    slots = torch.tensor([[[0.9] * 10, [0.1] * 10, [0.1] * 10]])
    slots[0, 0, 3:] = -torch.inf
    # Of 15 slots the heads win 3, 10 and 2: shares of 4, 7.5 and 3.5, and 1 that the first cannot take.
    assert Adaptive(0.5).counts(slots, window_of(0, 10), 5)[0].tolist() == [3, 8, 4]


@looped(
    ("shares", "most", "expected"),
    [
        ([2.5, 1.5], [9, 9], [3, 1]),
        ([1.2, 1.3, 1.5], [9, 9, 9], [1, 1, 2]),
        ([5.0, 1.0, 1.0], [3, 9, 9], [3, 2, 2]),
        # 3 over, 1.5 for each of the others, of which the second takes 1.
        ([6.0, 2.0, 1.0], [3, 3, 9], [3, 3, 3]),
        ([4.0, 4.0], [4, 4], [4, 4]),
        # .1 + .2 is a little more than .3: no difference.
        ([0.3, 0.1 + 0.2, 0.4], [9, 9, 9], [0, 0, 1]),
        ([1.3, 1.1 + 0.2, 0.4], [9, 9, 9], [1, 1, 1]),
        ([0.4, 1.3, 1.1 + 0.2, 1.0], [9, 9, 9, 9], [1, 1, 1, 1]),
        ([0.5, 0.2 + 0.3, 0.1 + 0.4, 0.5], [9, 9, 9, 9], [1, 1, 0, 0]),
        ([2 / 3, 3 - 7 / 3, 1 - 1 / 3], [9, 9, 9], [1, 1, 0]),
    ],
)
def test_shares_are_rounded_by_largest_remainder_below_what_there_is(shares, most, expected):
    assert round_counts(torch.tensor(shares, dtype=torch.float64), torch.tensor(most)).tolist() == expected


# Scissorhands

TOY = "1; .6 .4; .5 .1 .4; .4 .2 .1 .3; .5 .25 .05 .1 .1; .3 .1 .05 .2 .05 .3"
TOY_ROWS = torch.tensor([[[float(x) for x in (row + " 0" * 6).split()[:6]] for row in TOY.split(";")]])


def test_scissorhands_drops_what_is_most_often_below_average():
    passed = NeglectCounts(window=3).attend(AttentionRows(TOY_ROWS, 0, 0, 6, 1), None)
    # Below .25, .2 and .1667 in the last three rows, counting the slots that each row sees.
    assert passed.low.tolist() == [[0, 2, 3, 1, 2, 0]]
    # Slots 1 and 4 tie; they receive .55 and .15.
    assert kept(scissorhands(window=3, recent=1), 5, passed) == [[0, 1, 3, 4, 5]]
    assert kept(scissorhands(window=3, recent=1), 4, passed) == [[0, 1, 3, 5]]


@looped("window", [1, 40, 90, 400])
@looped("block", [7, 32, 128])
def test_neglect_is_counted_over_the_last_rows_whatever_the_blocks(window, block):
    prompt = a_prompt(90, layers=1, dtype=torch.float64)
    attention = plain_attention(prompt.queries[0], prompt.keys[0], prompt.scale)
    low = torch.zeros(4, 90)
    for row in range(max(0, 90 - window), 90):
        for slot in range(row + 1):
            low[:, slot] += attention[:, row, slot] < 1 / (row + 1)
    passed = measured(NeglectCounts(window), prompt, block=block)
    assert torch.equal(passed.low, low)
    torch.testing.assert_close(passed.received, attention[:, -window:].sum(1))


def test_scissorhands_ranks_by_count_then_by_attention_of_the_whole_group():
    prompt = a_prompt(90, layers=1, q_heads=6, kv_heads=2, sharpness=0.5)
    policy = scissorhands(window=5, recent=0)
    passed = measured(NeglectCounts(5), prompt)
    mask = policy.keep(a_view(prompt, [policy]), 30)[0]
    for head in range(2):
        low, received = (part[3 * head : 3 * head + 3].double().sum(0).tolist() for part in passed)
        order = sorted(range(90), key=lambda slot: (low[slot], -received[slot]))
        assert mask[head].nonzero().flatten().tolist() == sorted(order[:30])


def test_no_attention_outweighs_a_single_row_more():
    """At the bound: one head of the group passes slot 0 over in one row, and all attention goes there."""
    passed = NeglectState(torch.tensor([[1, 0], [0, 0]]), torch.tensor([[3.0, 0], [3, 0]]))
    assert kept(scissorhands(window=3, recent=0), 1, passed, n=2) == [[1]]


# Settings


def test_the_paper_and_kvpress_differ_in_the_length_of_a_chunk():
    assert policies.get("chunkkv").selection == Chunks(10)
    assert policies.get("chunkkv-20").selection == Chunks(20)


def test_what_the_policies_protect():
    """Those of the papers on decoding are in files of their own."""
    prefilling = policies.names()[6 : policies.names().index("snapkv_with_window") + 1]
    ends = {name: policies.get(name).protect for name in prefilling}
    window = Protect(sinks=0, recent=32)
    crystals = [name for name in ends if name.startswith("crystal-")]
    assert ends == {
        **dict.fromkeys(crystals, Protect(sinks=4, recent=128, always=False)),
        **dict.fromkeys(("tova", "knorm", "keydiff"), Protect(sinks=0, recent=0)),
        **dict.fromkeys(("pyramidkv", "chunkkv", "chunkkv-20", "ada-snapkv"), window),
        "scissorhands": Protect(sinks=0, recent=10),
        **dict.fromkeys(prefilling[prefilling.index("1d") :], Protect(sinks=0, recent=0)),
    }
    assert policies.get("tova").routing == PerLayer()
