"""S1 as a fold over rows: in a prefill, after an eviction, and read at any moment."""

import crystal_by_hand as paper
import pytest
import torch
from looped import looped
from policy_prompts import a_prompt, plain_attention

from policies import AttentionRows
from policies.crystal.coattention import PART, CoAttention, cosines, top_entries

SMALL = CoAttention(chunk=24, intra_k=3, intra_threshold=0.3, cross_k=2, cross_threshold=0.02)


def attention_of(n, *, heads=4, seed=0):
    """[head, n, n], causal, float64."""
    prompt = a_prompt(n, layers=1, q_heads=heads, kv_heads=heads, seed=seed)
    return plain_attention(prompt.queries[0], prompt.keys[0], prompt.scale)


def folded(signal, attention, steps, origin=0, state=None):
    """The state after `steps` rows at a time of attention [head, row, slot], from row `origin` on."""
    start = origin
    for step in steps:
        stop = start + step
        rows = AttentionRows(attention[None, :, start:stop, :stop], layer=0, start=0, total=0, kv_heads=1)
        state, start = signal.attend(rows, state), stop
    return state


def plainly(signal, attention, origin=0):
    """Mass and edges from plain loops over the paper, which count chunks from slot 0: slots that nobody
    attends to are put in front, so that a chunk begins at the origin.
    """
    n, front = attention.shape[-1], -origin % signal.chunk
    whole = torch.zeros(len(attention), front + n, front + n, dtype=torch.float64)
    whole[:, front:, front:] = attention
    found = paper.edges(
        whole.tolist(), signal.chunk, signal.intra_k, signal.intra_threshold, signal.cross_k, signal.cross_threshold
    )
    mass = paper.salience(whole.tolist(), signal.chunk, -1.0, 1e9)[front + origin :]
    return mass, sorted((i - front, j - front, w) for i, j, w in found if max(i, j) >= front + origin)


def listed(edges):
    return sorted(zip(*(column.tolist() for column in edges), strict=True))


def assert_as_read_plainly(observed, expected):
    mass, edges = expected
    found = listed(observed.edges)
    assert observed.mass.tolist() == pytest.approx(mass, rel=1e-9)
    assert [edge[:2] for edge in found] == [edge[:2] for edge in edges]
    assert [edge[2] for edge in found] == pytest.approx([edge[2] for edge in edges], rel=1e-9)


@looped("steps", [[80], [1] * 80, [7, 40, 33], [24, 24, 24, 8]])
def test_a_prefill_is_read_as_the_paper_says_whatever_the_blocks(steps):
    attention = attention_of(80)
    observed = SMALL.result(folded(SMALL, attention, steps))
    assert observed.origin == 0
    assert_as_read_plainly(observed, plainly(SMALL, attention))


@looped("origin", [1, 24, 37, 79])
@looped("first", [1, 5])
def test_after_an_eviction_chunks_are_counted_from_the_first_new_token(origin, first):
    """Older slots are earlier chunks of Eq. 14; with 55 new tokens two chunks complete on the way."""
    attention = attention_of(origin + 55)
    state = folded(SMALL, attention, [first] + [1] * (55 - first), origin)
    observed = SMALL.result(state)
    assert observed.origin == origin
    assert_as_read_plainly(observed, plainly(SMALL, attention, origin))
    assert any(i < origin for i, _, _ in listed(observed.edges)), "no edge from an older slot"


def test_few_new_tokens_after_an_eviction_are_a_chunk():
    attention = attention_of(42)
    for count in (1, 2):
        seen = attention[:, : 40 + count, : 40 + count]
        observed = SMALL.result(folded(SMALL, attention, [1] * count, 40))
        assert_as_read_plainly(observed, plainly(SMALL, seen, 40))


@pytest.mark.parametrize("origin", [0, 10])
def test_an_unfinished_chunk_can_be_read_at_any_moment_and_goes_on(origin):
    attention, state = attention_of(60), None
    for stop in range(origin + 1, 61):
        state = folded(SMALL, attention, [1], stop - 1, state)
        observed = SMALL.result(state)
        assert len(observed.mass) == stop - origin
        if stop % 7 == 0:
            assert_as_read_plainly(observed, plainly(SMALL, attention[:, :stop, :stop], origin))
    unread = folded(SMALL, attention, [1] * (60 - origin), origin)
    assert listed(SMALL.result(unread).edges) == listed(SMALL.result(state).edges)


def test_the_state_keeps_no_row_over_all_slots():
    attention = torch.full((2, 4, 5000), 1 / 5000)
    prefilled = SMALL.attend(AttentionRows(attention, 0, 0, 0, 1), None)
    decoded = SMALL.attend(AttentionRows(attention[:, :1], 0, 0, 0, 1), None)
    for state in (prefilled, decoded):
        held = sum(pattern.untyped_storage().nbytes() for pattern in state.patterns)
        assert 0 < held <= 4 * 4 * 4, "four rows of four columns in float32"


def test_the_attention_that_other_signals_read_is_left_as_it_was():
    attention = attention_of(60)
    before = attention.clone()
    SMALL.result(folded(SMALL, attention, [60]))
    assert torch.equal(attention, before)


def by_sorting(values, count, threshold):
    found = []
    for row, line in enumerate(values.tolist()):
        columns = sorted(range(len(line)), key=lambda column: (-line[column], column))[:count]
        found += [(row, column, line[column]) for column in columns if line[column] > threshold]
    return sorted(found)


@looped("columns", [1, 5, PART - 1, PART, PART + 1, 3 * PART, 5 * PART + 9])
@looped("count", [1, 3, 8, 400])
def test_the_strongest_are_those_of_a_sorted_row_and_ties_keep_the_lower_column(columns, count):
    random = torch.Generator().manual_seed(columns)
    few_values = torch.randint(6, (40, columns), generator=random).float()
    many_values = torch.randn(40, columns, generator=random)
    for values in (few_values, many_values, torch.ones(3, columns)):
        for threshold in (-3.0, 0.5, 4.0, 9.0):
            assert listed(top_entries(values, count, threshold)) == by_sorting(values, count, threshold)


@looped("n", [1, 2, 128, 129, 300])
def test_cosines_of_causal_rows_are_those_of_the_whole_product(n):
    unit = torch.nn.functional.normalize(torch.rand(n, n, dtype=torch.float64).tril(), dim=1)
    expected = (unit @ unit.T).fill_diagonal_(-torch.inf)
    torch.testing.assert_close(cosines(unit), expected)
