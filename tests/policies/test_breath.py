"""CrystalCache at decode time: against plain loops, and each sub-step against its equation."""

import math
from dataclasses import replace
from typing import NamedTuple

import breath_by_hand as paper
import pytest
import torch
from looped import looped
from policy_prompts import a_later_view, a_prompt, a_view, plain_attention, up_to

import policies
from policies import Cadence
from policies.crystal import CrystalConfig, crystal, graph
from policies.crystal.breath import Breath, InverseKeyNorms
from policies.crystal.coattention import Edges
from policies.crystal.graph import Links
from policies.crystal.table import TrunkTable

SMALL = CrystalConfig(chunk=32, intra_k=3, max_trunk=12, sinks=2, recent=10)
PAPER = paper.DEFAULTS | {"chunk": 32, "intra_k": 3, "max_trunk": 12}
ENDS = (0, 1)


def a_lane(n, seed, *, spread=0.5):
    """Tokens, queries and keys in float64, keys of the first layer with norms that differ by `spread`."""
    prompt = a_prompt(n, layers=2, q_heads=4, kv_heads=2, vocabulary=12, dtype=torch.float64, seed=seed)
    random = torch.Generator().manual_seed(seed)
    lengths = torch.exp(spread * torch.randn(n, generator=random, dtype=torch.float64))
    prompt.keys[0] *= lengths[:, None]
    return prompt


def with_breath(policy, breath, every=16):
    return replace(policy, scoring=replace(policy.scoring, breath=breath), cadence=Cadence(interval=every))


def over_the_slots(prompt, positions, origin):
    """attention[head][row][slot] of the first layer: the tokens from slot `origin` on over those before."""
    keys, rows = prompt.keys[0][:, positions], []
    for slot in range(origin, len(positions)):
        query = prompt.queries[0][:, positions[slot]]
        own = keys[:, : slot + 1].repeat_interleave(2, 0)
        logits = (own * query[:, None]).sum(-1) * prompt.scale
        rows.append(torch.cat([logits.softmax(-1), torch.zeros(4, len(positions) - slot - 1)], -1))
    return torch.stack(rows, 1).tolist()


def the_same(memory, state):
    """Spans, D, trunk impact, M_i and W of a table are those of a state."""
    assert [list(span) for span in memory.spans] == [trunk["slots"] for trunk in state["trunks"]]
    assert memory.crystallization.tolist() == pytest.approx([t["D"] for t in state["trunks"]], rel=1e-8)
    assert memory.impact.tolist() == pytest.approx([t["M"] for t in state["trunks"]], rel=1e-9)
    assert memory.slots.tolist() == pytest.approx(state["worth"], rel=1e-9)
    assert pairs(memory.links) == pytest.approx(state["W"], rel=1e-9)
    assert memory.token_count == state["seen"]


def pairs(links):
    return {(a, b): w for a, b, w in zip(*(column.tolist() for column in links), strict=True)}


class Happened(NamedTuple):
    held: int
    kept: int
    trunks: int
    active: int


def exercised(policy, settings, lengths, budget, prompt, *, ends=ENDS, sinks=2, recent=10):
    """Events at these lengths, each compared with the loops."""
    ids, happened = prompt.token_ids.tolist(), []
    view = a_view(up_to(prompt, lengths[0]), [policy], sentence_ends=ends)
    attention = plain_attention(*(part[0][:, : lengths[0]] for part in prompt[1:3]), prompt.scale)
    state = paper.prefilled(ids[: lengths[0]], ends, attention.tolist(), settings)
    for following in [*lengths[1:], None]:
        event, held, trunks = policy.evict(view, budget), len(state["worth"]), len(state["trunks"])
        kept = list(range(held))
        if held > budget:
            kept, state = paper.evicted(state, sinks, recent, budget, settings)
        assert event.retained.shape == (2, 2, held)
        assert all(row.nonzero().flatten().tolist() == kept for row in event.retained.flatten(0, 1))
        the_same(event.memory, state)
        happened.append(Happened(held, len(kept), trunks, len(state["active"])))
        if following is not None:
            view = a_later_view(prompt, policy, view, event, following)
            positions = view.positions[0, 0]
            attention = over_the_slots(prompt, positions, len(kept))
            norms = (1 / prompt.keys[0][:, positions].norm(dim=-1)).mean(0).tolist()
            state = paper.breathed(state, ids[:following], ends, attention, norms, settings)
            sinks = recent = 0  # a breath protects nothing
    return happened


EVERY_16 = [90, 106, 122, 138, 154]
CASES = {
    "every 16 tokens": ({}, ENDS, EVERY_16, 45),
    "irregular, once with more new tokens than a chunk": ({}, ENDS, [100, 101, 141, 150, 160], 50),
    "the prompt fits": ({}, ENDS, [48, 64, 80, 96, 112], 60),
    "no sentence ends": ({}, (), EVERY_16, 48),
    "every token ends a sentence": ({}, range(12), EVERY_16, 40),
    "keys of equal norm": ({"spread": 0.0}, ENDS, EVERY_16, 45),
    "keys of very different norms": ({"spread": 2.0}, ENDS, EVERY_16, 45),
}


@looped("seed", range(2))
@looped("case", CASES)
def test_every_event_is_that_of_the_paper(case, seed):
    lane, ends, lengths, budget = CASES[case]
    policy = replace(crystal(SMALL), cadence=Cadence(interval=16))
    happened = exercised(policy, PAPER, lengths, budget, a_lane(lengths[-1], seed, **lane), ends=ends)
    assert sum(event.kept < event.held for event in happened) >= 4
    shares = [event.active / event.trunks for event in happened[1:]]
    if case == "keys of equal norm":
        assert shares == [1.0] * 4
    elif case == "keys of very different norms":
        assert 0 <= max(shares) < 0.5
    elif lengths is EVERY_16:
        assert any(0 < share < 1 for share in shares)


@looped(
    ("breath", "settings"),
    [
        (Breath(hebbian=0.0, edge_decay=1.0), {"hebbian": 0.0, "edge_decay": 1.0}),
        (Breath(renewal=0.3), {"renewal": 0.3}),
        (Breath(rate=0.3, scale=9.0), {"rate": 0.3, "scale": 9.0}),
        (Breath(threshold=0.6), {"active": 0.6}),
        (Breath(resonance=1.0, hops=4, hop_decay=1.0), {"resonance": 1.0, "hops": 4, "hop_decay": 1.0}),
        (Breath(hebbian=0.4, edge_decay=0.5), {"hebbian": 0.4, "edge_decay": 0.5}),
        (Breath(min_pulse=0.2), {"min_pulse": 0.2}),
    ],
)
def test_every_setting_is_that_of_the_paper(breath, settings):
    policy = with_breath(crystal(SMALL), breath)
    exercised(policy, PAPER | settings, [100, 116, 133, 150], 50, a_lane(150, seed=3))


def test_a_long_generation_breathes_often_and_stays_in_bounds():
    """Forty events, four tokens apart: D in [0, 1], links from the threshold to 1, the budget met."""
    prompt, policy = a_lane(240, seed=4), replace(crystal(SMALL), cadence=Cadence(interval=4))
    view = a_view(up_to(prompt, 80), [policy], sentence_ends=ENDS)
    for length in range(84, 241, 4):
        event = policy.evict(view, 40)
        memory, held = event.memory, int(event.retained[0, 0].sum())
        assert 38 <= held <= 40
        assert ((memory.crystallization >= 0) & (memory.crystallization <= 1)).all()
        assert ((memory.links.weight >= 0.05) & (memory.links.weight <= 1)).all()
        assert (memory.links.a < memory.links.b).all()
        view = a_later_view(prompt, policy, view, event, length)


def test_the_settings_are_those_of_table_14():
    assert Breath() == Breath(0.05, 2.0, 0.3, 0.15, 2, 0.5, 0.01, 0.05, 0.99, 0.0)
    assert policies.get("crystal").scoring.breath == Breath()


def vector(*values):
    return torch.tensor(values, dtype=torch.float64)


def graph_of(count, links):
    """A symmetric [trunk, trunk] out of {(a, b): weight}."""
    weights = torch.zeros(count, count, dtype=torch.float64)
    for (a, b), weight in links.items():
        weights[a, b] = weights[b, a] = weight
    return weights


def test_decay_takes_its_rate_from_d_and_impact():
    # .5 * 4 / 2 = 1, .5 * 0 / 2 = 0.
    once = Breath().decay(vector(0.5, 0.5, 0.0), vector(4.0, 0.0, 9.0), 1)
    assert once.tolist() == pytest.approx([0.5 * (1 - 0.05 / math.e), 0.5 * 0.95, 0.0])
    again = Breath().decay(once, vector(4.0, 0.0, 9.0), 1)
    assert again.tolist() == Breath().decay(vector(0.5, 0.5, 0.0), vector(4.0, 0.0, 9.0), 2).tolist()
    assert again[0].item() == pytest.approx(once[0] * (1 - 0.05 * math.exp(-2 * once[0])))


def test_decay_never_falls_below_zero():
    assert Breath(rate=3.0).decay(vector(0.3), vector(0.0), 1).tolist() == [0.0]


def test_a_trunk_is_active_when_more_than_half_of_its_slots_are_above_the_threshold():
    # Normalised by 10: 1 .31 .3 .29 | .31 .31 .31 0 | .31 .31 .3 .3 | .31.
    inverse = torch.tensor([10, 3.1, 3, 2.9, 3.1, 3.1, 3.1, 0, 3.1, 3.1, 3, 3, 3.1])
    spans = [range(4), range(4, 8), range(8, 12), range(12, 13)]
    assert Breath().active(inverse, spans).tolist() == [False, True, False, True]


def test_inverse_norms_are_of_the_first_layer_and_the_mean_over_its_heads():
    keys = torch.tensor([[[3.0, 4.0], [0.0, 2.0]], [[0.0, 1.0], [8.0, 0.0]]], dtype=torch.bfloat16)
    filled = torch.ones(2, 2, dtype=torch.bool)
    found = InverseKeyNorms().summarise(0, keys, keys, filled)
    assert found.dtype == torch.float32
    assert found.tolist() == pytest.approx([(1 / 5 + 1) / 2, (1 / 2 + 1 / 8) / 2])
    assert InverseKeyNorms().summarise(1, keys, keys, filled) is None


CHAIN = graph_of(5, {(0, 1): 0.8, (1, 2): 0.6, (2, 3): 0.9, (3, 4): 0.9})


def only(count, *active):
    return torch.tensor([g in active for g in range(count)])


def test_a_pulse_halves_at_each_of_two_hops_and_returns_to_nobody():
    assert Breath().pulse(0, CHAIN).tolist() == pytest.approx([0, 0.4, 0.4 * 0.3, 0, 0])
    assert Breath().pulse(2, CHAIN).tolist() == pytest.approx([0.3 * 0.4, 0.3, 0, 0.45, 0.45 * 0.45])
    assert Breath(hops=1).pulse(0, CHAIN).tolist() == pytest.approx([0, 0.4, 0, 0, 0])


def test_a_trunk_is_reached_in_the_fewest_hops_though_another_way_is_stronger():
    weights = graph_of(3, {(0, 1): 0.2, (0, 2): 0.8, (1, 2): 0.9})
    assert Breath().pulse(0, weights).tolist() == pytest.approx([0, 0.1, 0.4])


def test_a_pulse_below_the_least_does_not_arrive():
    # 1/4 * 1/4 is below an eighth, 1/4 * 1/2 is an eighth.
    weights = graph_of(4, {(0, 1): 0.5, (1, 2): 0.5, (1, 3): 1.0})
    assert Breath(min_pulse=1 / 8).pulse(0, weights).tolist() == [0, 1 / 4, 0, 1 / 8]


def test_resonance_raises_the_trunks_within_two_hops_and_no_others():
    d = vector(0.2, 0.5, 0.5, 0.5, 0.5)
    raised = Breath().resonate(d, only(5, 0), CHAIN)
    assert raised.tolist() == pytest.approx([0.2, 0.5 + 0.15 * 0.4 * 0.5, 0.5 + 0.15 * 0.12 * 0.5, 0.5, 0.5], rel=1e-12)


def test_the_blog_renews_active_trunks_themselves():
    renewed = Breath(renewal=0.3).resonate(vector(0.2, 0.2), only(2, 0), graph_of(2, {}))
    assert renewed.tolist() == pytest.approx([0.2 + 0.3 * 0.8, 0.2])


def test_links_of_co_active_trunks_grow_up_to_one_and_all_others_fade():
    weights = graph_of(4, {(0, 1): 0.3, (1, 2): 0.98, (0, 3): 0.5, (2, 3): 1.0})
    expected = {(0, 1): 0.35, (1, 2): 1.0, (0, 2): 0.05, (0, 3): 0.495, (2, 3): 0.99}
    found = Breath().associate(weights, only(4, 0, 1, 2), 0.05)
    assert found.flatten().tolist() == pytest.approx(graph_of(4, expected).flatten().tolist())


def a_table():
    return TrunkTable(
        slots=torch.arange(9, dtype=torch.float64),
        spans=(range(0, 3), range(3, 5), range(5, 9)),
        crystallization=vector(0.9, 0.8, 0.6),
        impact=vector(7.0, 3.5, 7.0),
        links=Links(torch.tensor([0, 0, 1]), torch.tensor([1, 2, 2]), vector(0.3, 0.4, 0.5)),
        token_count=40,
    )


def kept_of(count, *slots):
    return torch.tensor([slot in slots for slot in range(count)]).expand(2, 3, count)


def test_d_shrinks_with_the_share_of_its_slots_that_a_trunk_keeps():
    left = a_table().retain(kept_of(9, 0, 1, 3, 4, 6))
    assert left.spans == (range(0, 2), range(2, 4), range(4, 5))
    assert left.crystallization.tolist() == pytest.approx([0.6, 0.8, 0.15])
    assert left.slots.tolist() == [0, 1, 3, 4, 6]
    assert left.impact.tolist() == [7.0, 3.5, 7.0]
    assert pairs(left.links) == pairs(a_table().links)


def test_a_trunk_without_slots_is_forgotten_with_its_links():
    left = a_table().retain(kept_of(9, 0, 7, 8))
    assert left.spans == (range(0, 1), range(1, 3))
    assert left.crystallization.tolist() == pytest.approx([0.3, 0.3])
    assert left.impact.tolist() == [7.0, 7.0]
    assert pairs(left.links) == {(0, 1): 0.4}
    assert left.token_count == 40


def test_d_and_w_are_of_double_precision():
    """1 / 3 and the root of 1 / 3 in single precision are off by 1e-8."""
    left = a_table().retain(kept_of(9, 0, 3, 5))
    assert left.crystallization.tolist() == pytest.approx([0.9 / 3, 0.4, 0.15], rel=1e-14)
    edge = Edges(torch.tensor([0]), torch.tensor([1]), vector(1.0))
    weight = graph.build_links((range(0, 1), range(1, 4)), edge, 0.05).weight
    assert weight.tolist() == pytest.approx([math.sqrt(1 / 3)], rel=1e-14)


def two_events(name, *, budgets=(200, 200), seed=0):
    """After the prefill of 120 tokens and at the breath 16 tokens later; by default all is kept."""
    policy = policies.get(name, protect=policies.Protect(2, 10, always=False), cadence=Cadence(interval=16))
    prompt = a_lane(136, seed, spread=0.4)
    first = a_view(up_to(prompt, 120), [policy], sentence_ends=ENDS)
    before = policy.evict(first, budgets[0])
    return before, policy.evict(a_later_view(prompt, policy, first, before, 136), budgets[1])


def old_links(memory, trunks):
    return {pair: weight for pair, weight in pairs(memory.links).items() if max(pair) < trunks}


def test_a_still_crystal_leaves_d_and_w_as_they_are():
    before, after = (event.memory for event in two_events("crystal-still"))
    old = len(before.spans)
    assert len(after.spans) > old
    assert torch.equal(after.crystallization[:old], before.crystallization)
    assert old_links(after, old) == pairs(before.links)


def test_a_static_graph_leaves_w_as_it_is_while_d_moves():
    before, after = (event.memory for event in two_events("crystal-static-graph"))
    old = len(before.spans)
    assert old_links(after, old) == pairs(before.links)
    assert (after.crystallization[:old] != before.crystallization).all()


def test_sinks_and_recent_slots_are_protected_at_the_prefill_and_may_leave_at_a_breath():
    kept = [
        (before.retained[0, 0], after.retained[0, 0])
        for before, after in (two_events("crystal", budgets=(80, 30), seed=seed) for seed in range(4))
    ]
    assert all(before[:2].all() and before[-10:].all() for before, _ in kept)
    assert not all(after[:2].all() for _, after in kept)
    assert not all(after[-10:].all() for _, after in kept)
