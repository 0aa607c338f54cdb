"""CrystalCache against plain loops, by hand, and streamed against materialised attention."""

import math
from dataclasses import replace

import crystal_by_hand as paper
import pytest
import torch
from crystal_tracing import trace
from looped import looped
from policy_prompts import a_prompt, a_view, measured, plain_attention

import policies
from policies import AttentionRows, BudgetError, Trunks, View
from policies.crystal import BranchDissolution, CrystalConfig, crystal, graph, impact, trunks
from policies.crystal.coattention import CoAttention, Edges

SMALL = CrystalConfig(chunk=32, intra_k=3, max_trunk=12, sinks=2, recent=10)
NO_EDGES = Edges(torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64), torch.zeros(0))


def attention_of(n, *, heads=4, sharpness=2.0, seed=0):
    """A causal attention [head, n, n] in float64 and token ids [n]."""
    prompt = a_prompt(n, layers=1, q_heads=heads, kv_heads=heads, sharpness=sharpness, vocabulary=12, seed=seed)
    return plain_attention(prompt.queries[0], prompt.keys[0], prompt.scale), prompt.token_ids


CASES = {
    "whole chunks": (96, 4, (0, 1), 60, SMALL),
    "ragged last chunk": (83, 4, (0, 1), 50, SMALL),
    "last chunk of one token": (65, 4, (0, 1, 2), 40, SMALL),
    "fewer heads than the top three": (70, 2, (0,), 45, SMALL),
    "one chunk": (60, 5, (0, 1), 40, replace(SMALL, chunk=1024)),
    "no sentence ends": (90, 4, (), 48, SMALL),
    "every token ends a sentence": (60, 4, range(12), 30, SMALL),
    "nothing merges": (80, 4, (0, 1, 2), 50, replace(SMALL, merge_threshold=2.0)),
    "everything merges": (80, 4, (0, 1, 2), 50, replace(SMALL, merge_threshold=0.0, intra_threshold=0.0)),
    "no edges": (64, 4, (0, 1, 2), 40, replace(SMALL, intra_threshold=2.0, cross_threshold=2.0)),
    "only cross-chunk edges": (80, 4, (0, 1, 2), 50, replace(SMALL, intra_threshold=2.0)),
    "many edges, low threshold": (80, 4, (0, 1), 44, replace(SMALL, intra_k=8, edge_threshold=0.3)),
    "impact clipped from both sides": (80, 4, (0, 1), 44, replace(SMALL, impact_min=0.9, impact_max=2.0)),
    "nothing protected": (80, 4, (0, 1), 20, replace(SMALL, sinks=0, recent=0)),
    "whole trunks only": (80, 4, (0, 1), 37, replace(SMALL, min_keep=13)),
    "last slot of a trunk may stay": (80, 4, (0, 1), 37, replace(SMALL, min_keep=1)),
    "impact counts less": (80, 4, (0, 1), 37, replace(SMALL, alpha=0.3)),
    "defaults": (300, 3, (0,), 210, CrystalConfig()),
}


def agrees(attention, token_ids, ends, budget, config):
    """Compares every stage with the loops; the kept slots."""
    n = len(token_ids)
    result = trace(attention, token_ids, frozenset(ends), budget, config)
    rows, ids = attention.tolist(), token_ids.tolist()

    salient = paper.salience(rows, config.chunk, config.impact_min, config.impact_max)
    assert result.salience.tolist() == pytest.approx(salient, rel=1e-9)

    found = paper.edges(
        rows, config.chunk, config.intra_k, config.intra_threshold, config.cross_k, config.cross_threshold
    )
    found.sort()
    assert [edge[:2] for edge in result.edges] == [edge[:2] for edge in found]
    assert [edge[2] for edge in result.edges] == pytest.approx([edge[2] for edge in found], rel=1e-9)

    groups = paper.trunks(ids, ends, found, config.merge_threshold, config.max_trunk)
    assert result.trunks == groups

    worth = paper.impact(salient, ids, config.impact_min, config.impact_max)
    assert result.impact.tolist() == pytest.approx(worth, rel=1e-9)

    linked = paper.weights(groups, found, config.edge_threshold)
    d = paper.crystallization(linked, len(groups), config.steepness)
    assert result.crystallization.tolist() == pytest.approx(d, rel=1e-6)

    whole = paper.protected(groups, n, config.sinks, config.recent)
    score = paper.scores(d, paper.trunk_impact(worth, groups), whole, config.alpha)
    unprotected = [x for x, is_whole in zip(result.score.tolist(), whole, strict=True) if not is_whole]
    assert unprotected == pytest.approx([x for x in score if x is not None], rel=1e-6)

    kept, share = paper.dissolve(groups, score, whole, worth, budget, config.min_keep)
    assert result.retained == kept
    assert result.retention.tolist() == pytest.approx(share)
    assert 0 <= min(budget, n) - len(kept) <= max(0, config.min_keep - 1)
    return kept


@looped("case", CASES)
def test_every_stage_is_that_of_the_paper(case):
    n, heads, ends, budget, config = CASES[case]
    agrees(*attention_of(n, heads=heads), ends, budget, config)


@looped("n", [1, 2, 3, 31, 32, 33, 61, 64, 65, 97])
@looped("chunk", [1, 2, 32])
def test_every_stage_is_that_of_the_paper_whatever_the_length_and_the_chunk(n, chunk):
    config = replace(SMALL, chunk=chunk, sinks=1, recent=0)
    agrees(*attention_of(n, seed=n), (0, 1), max(12, n // 2), config)


@looped("n", [33, 64, 90])
@looped("end", ["at the last token", "nowhere"])
def test_one_giant_sentence_is_split_into_pieces_and_treated_as_the_paper_does(n, end):
    attention, token_ids = attention_of(n, seed=n)
    token_ids[-1] = 99
    agrees(attention, token_ids, {99} if end == "at the last token" else (), n - 8, SMALL)
    pieces = trace(attention, token_ids, {99}, n, SMALL).trunks
    assert len(pieces) == math.ceil(n / 12)
    assert {len(piece) for piece in pieces} <= {n // len(pieces), n // len(pieces) + 1}


@looped("ends", [(), (7,)])
@looped("sharpness", [0.0, 2.0])
def test_every_stage_is_that_of_the_paper_where_all_tokens_are_equal(ends, sharpness):
    """One sentence, or as many as tokens; with a sharpness of 0 the attention knows positions only."""
    attention, _ = attention_of(80, sharpness=sharpness)
    agrees(attention, torch.full((80,), 7), ends, 44, SMALL)


@pytest.mark.parametrize("n", [1, 2, 5, 131, 132])
def test_a_prompt_of_sinks_and_window_is_kept_at_its_length_and_refused_below(n):
    attention, token_ids = attention_of(n, heads=3)
    for budget in (n, n + 1):
        assert agrees(attention, token_ids, {0}, budget, CrystalConfig()) == list(range(n))
    with pytest.raises(BudgetError, match=f"budget of {n - 1} slots is below the {n} slots of the trunks"):
        trace(attention, token_ids, {0}, n - 1)


@pytest.mark.parametrize("seed", range(4))
def test_kept_slots_are_those_of_the_paper_at_every_budget(seed):
    attention, token_ids = attention_of(70, seed=seed)
    whole_prompt = trace(attention, token_ids, {0, 1}, 70, SMALL)
    whole = paper.protected(whole_prompt.trunks, 70, 2, 10)
    for budget in range(1, 73):
        expected = paper.dissolve(
            whole_prompt.trunks, whole_prompt.score.tolist(), whole, whole_prompt.impact.tolist(), budget, 3
        )
        if expected is None:
            with pytest.raises(BudgetError, match=f"budget of {budget} slots is below the"):
                trace(attention, token_ids, {0, 1}, budget, SMALL)
        else:
            assert trace(attention, token_ids, {0, 1}, budget, SMALL).retained == expected[0]


@looped("n", [1, 2, 31, 32, 33, 64, 129, 200])
@looped("chunk", [32, 50, 1024])
def test_the_streamed_signal_equals_the_trace_of_materialised_attention(n, chunk):
    config = replace(SMALL, chunk=chunk, sinks=1, recent=0)
    prompt = a_prompt(n, layers=2, q_heads=6, kv_heads=2, dtype=torch.float64)
    policy = crystal(config)
    view = a_view(prompt, [policy], sentence_ends=range(4))
    attention = plain_attention(prompt.queries[0], prompt.keys[0], prompt.scale)
    budget = max(12, n // 2)
    result = trace(attention, prompt.token_ids, set(range(4)), budget, config)

    first, *others = view.signals[policy.scoring.coattention]
    assert others == [None]
    assert sorted(zip(first.edges.i.tolist(), first.edges.j.tolist(), strict=True)) == [
        edge[:2] for edge in result.edges
    ]
    scores = policy.scoring.score(view)
    torch.testing.assert_close(scores.slots[0, 0], result.impact)
    torch.testing.assert_close(scores.trunks.crystallization, result.crystallization)
    kept = policy.keep(view, budget)
    assert kept.shape == (2, 2, n)
    for row in kept.flatten(0, 1):
        assert row.nonzero().flatten().tolist() == result.retained


def test_the_signal_never_holds_more_than_the_rows_of_one_chunk():
    signal, state = CoAttention(chunk=200), None
    for start in range(0, 500, 128):
        stop = min(start + 128, 500)
        state = signal.attend(AttentionRows(torch.ones(2, stop - start, stop) / stop, 0, start, 500, 1), state)
        assert sum(map(len, state.patterns)) == stop % 200
        assert all(pattern.shape[1] <= 200 for pattern in state.patterns)
    assert len(signal.result(state).mass) == 500


@looped("block", [1, 7, 64, 128, 300])
def test_blocks_of_rows_change_nothing(block):
    prompt = a_prompt(300, layers=1)
    signal = CoAttention(chunk=90)
    whole, cut = (measured(signal, prompt, block=size) for size in (300, block))
    torch.testing.assert_close(cut.mass, whole.mass)
    edges = [sorted(zip(*(column.tolist() for column in state.edges), strict=True)) for state in (whole, cut)]
    assert [edge[:2] for edge in edges[0]] == [edge[:2] for edge in edges[1]]
    torch.testing.assert_close(*(torch.tensor([edge[2] for edge in found]) for found in edges))


def edges_of(*entries):
    i, j, weight = zip(*entries, strict=True)
    return Edges(torch.tensor(i), torch.tensor(j), torch.tensor(weight, dtype=torch.float64))


def spans_of(*sizes):
    stops = [sum(sizes[: k + 1]) for k in range(len(sizes))]
    return tuple(range(stop - size, stop) for size, stop in zip(sizes, stops, strict=True))


def merged(parts, found, threshold=0.3, max_trunk=32):
    return tuple(trunks.merge_sentences(list(parts), found, threshold, max_trunk))


def test_sentences_merge_when_the_mean_of_recorded_edges_exceeds_the_threshold():
    parts = spans_of(6, 6)
    assert merged(parts, edges_of((5, 6, 0.31))) == spans_of(12)
    assert merged(parts, edges_of((5, 6, 0.3))) == parts
    assert merged(parts, edges_of((5, 6, 0.5), (4, 7, 0.05))) == parts
    assert merged(parts, NO_EDGES) == parts


def test_only_the_last_five_and_first_five_tokens_of_an_interface_count():
    parts = spans_of(6, 6)
    assert merged(parts, edges_of((1, 10, 0.9))) == spans_of(12)
    assert merged(parts, edges_of((0, 6, 0.9))) == parts
    assert merged(parts, edges_of((5, 11, 0.9))) == parts


def test_rarity_has_the_values_of_the_paper():
    ids = torch.tensor([0] + [1] * 10 + [2] * 100)
    # The paper prints 0.295 for ten occurrences; its formula gives 0.2943.
    assert impact.RARITY["logarithmic"](ids, ())[[0, 1, 11]].tolist() == pytest.approx([0.591, 0.2943, 0.178], abs=5e-4)


def degrees(spans, found, edge_threshold):
    links = graph.build_links(spans, found, edge_threshold)
    return graph.to_matrix(links, len(spans)).sum(0)


def test_trunk_weight_is_the_mean_scaled_by_the_root_of_the_density():
    # Between trunks of 2 and 3: weights .4 .6 .8 of both directions, mean .6, density 3 / 6.
    found = edges_of((0, 2, 0.4), (3, 1, 0.6), (1, 3, 0.8), (0, 1, 0.9), (5, 0, 0.06))
    degree = degrees(spans_of(2, 3, 2), found, 0.05)
    assert degree.tolist() == pytest.approx([0.6 * math.sqrt(0.5), 0.6 * math.sqrt(0.5), 0.0])
    # .06 * sqrt(1 / 4) = .03 is pruned; without a threshold it counts.
    assert degrees(spans_of(2, 3, 2), found, 0.0)[2].item() == pytest.approx(0.03)


def crystallized(spans, found):
    return graph.crystallization(graph.build_links(spans, found, 0.05), len(spans), 5.0).tolist()


def test_crystallization_uses_the_deviation_of_the_population():
    # Degrees 1, 1, 0: mean 2/3, deviation sqrt(2)/3.
    assert crystallized(spans_of(1, 1, 1), edges_of((0, 1, 1.0))) == pytest.approx(
        [1 / (1 + math.exp(-5 / math.sqrt(2)))] * 2 + [1 / (1 + math.exp(5 * math.sqrt(2)))]
    )


def dissolved(sizes, score, budget, *, worth=None, protected=(), min_keep=3):
    """Dissolution of trunks whose score is D alone."""
    spans = spans_of(*sizes)
    n = sum(sizes)
    held = torch.zeros(n, dtype=torch.bool)
    held[list(protected)] = True
    units = Trunks(spans, torch.tensor(score, dtype=torch.float64), torch.zeros(len(sizes), dtype=torch.float64))
    worth = torch.arange(n, 0, -1) if worth is None else torch.tensor(worth)
    return BranchDissolution(min_keep=min_keep).dissolve(worth.double(), units, held, budget)


def test_dissolution_by_hand():
    """The lowest trunk goes first and the next in part, its highest members staying, and none less than three."""
    result = dissolved((5, 5, 5), (0.3, 0.1, 0.2), budget=8)
    assert result.retention.tolist() == [1.0, 0.0, 0.6]
    assert result.retained == [0, 1, 2, 3, 4, 10, 11, 12]
    result = dissolved((4, 6), (0.9, 0.1), budget=7, worth=[0.0] * 4 + [1.0, 9.0, 2.0, 8.0, 3.0, 7.0])
    assert result.retained == [0, 1, 2, 3, 5, 7, 9]
    assert [len(dissolved((5, 5), (0.9, 0.1), budget).retained) for budget in (8, 7, 6, 5)] == [8, 5, 5, 5]
    assert dissolved((4, 4, 4), (0.5, 0.5, 0.5), budget=7, worth=[1.0] * 12).retained == [*range(7)]
    assert dissolved((4, 4, 4), (0.1, 0.9, 0.9), budget=8, protected=[3]).retained == [*range(8)]


def test_protected_trunks_above_the_budget_are_refused():
    with pytest.raises(
        BudgetError, match="budget of 7 slots is below the 8 slots of the trunks that contain the 2 protected"
    ):
        dissolved((4, 4, 4), (0.1, 0.9, 0.9), budget=7, protected=[0, 11])


def test_impact_is_scaled_over_the_unprotected_trunks():
    units = Trunks(
        spans_of(3, 3, 3),
        torch.tensor([0.0, 0.0, 0.4], dtype=torch.float64),
        torch.tensor([19.0, 1.0, 3.0], dtype=torch.float64),
    )
    protected = torch.zeros(9, dtype=torch.bool)
    protected[0] = True
    score = BranchDissolution().dissolve(torch.zeros(9), units, protected, 9).score
    assert score[1:].tolist() == pytest.approx([0.0, 1.0], abs=1e-6)
    everything = BranchDissolution().dissolve(torch.zeros(9), units, torch.zeros(9).bool(), 9).score
    middle = (math.log(4) - math.log(2)) / (math.log(20) - math.log(2))
    assert everything.tolist() == pytest.approx([1.0, 0.0, max(0.4, middle)], abs=1e-6)


def test_one_token_repeated_is_ranked_by_attention_alone():
    attention, _ = attention_of(64)
    result = trace(attention, torch.zeros(64, dtype=torch.int64), {1}, 40, SMALL)
    rarity = 1 / (1 + math.log(65))
    assert result.impact.tolist() == pytest.approx([0.5 * s + 10 * rarity for s in result.salience.tolist()])


def test_uniform_attention_on_one_token_keeps_the_lower_positions_of_ties():
    """Nothing but position and the length of the column tells tokens apart: earlier ones receive more."""
    attention, _ = attention_of(64, sharpness=0.0)
    result = trace(attention, torch.zeros(64, dtype=torch.int64), {1}, 40, replace(SMALL, chunk=64))
    assert 38 <= len(result.retained) <= 40
    assert result.retained == trace(attention, torch.zeros(64).long(), {1}, 40, replace(SMALL, chunk=64)).retained


def test_attention_that_is_not_finite_is_refused():
    attention, token_ids = attention_of(40)
    attention[0, 30, 7] = torch.nan
    with pytest.raises(ValueError, match="scores must be finite: layer 0, head 0, slot 7 is nan"):
        trace(attention, token_ids, {0}, 30, SMALL)


def test_dissolution_without_trunks_is_refused():
    policy = policies.get("streaming", selection=BranchDissolution())
    with pytest.raises(ValueError, match="BranchDissolution needs scores with trunks"):
        policy.keep(View(torch.arange(9), 1, 1, frozenset(), 0, {}), 8)


def test_crystal_heads_may_each_dissolve_the_same_trunks():
    policy = policies.get("crystal")
    prompt = a_prompt(300)
    shared = policy.keep(a_view(prompt, [policy]), 220)
    alone = policies.get("crystal", routing=policies.PerHead()).keep(a_view(prompt, [policy]), 220)
    assert torch.equal(shared, alone)


def test_the_defaults_are_those_of_table_14():
    assert crystal() == policies.get("crystal")
    assert crystal(CrystalConfig()).scoring.coattention == CoAttention(1024, 8, 0.3, 4, 0.02)
    assert CrystalConfig() == CrystalConfig(1024, 8, 0.3, 4, 0.02, 32, 0.3, 0.1, 20.0, 0.05, 5.0, 1.0, 4, 128, 3)
