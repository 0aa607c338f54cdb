"""Values in a subspace: by hand, against plain loops over numbers, and what does not fit is refused."""

from dataclasses import replace

import pytest
import torch
from policy_prompts import a_prompt, a_view, random_bases

import policies
from policies import Bases, Calibrated
from policies.subspace import Coefficients, Subspace, coefficients, expand_coefficients

# Four values whose directions are the axes: along the first they vary with 2, along the second with 1/2.
VALUES = torch.tensor([[2.0, 0], [0, 1], [-2, 0], [0, -1]])[None]
MEAN, AXIS = torch.zeros(1, 2), torch.tensor([[[1.0], [0.0]]])


def test_one_direction_of_two_keeps_four_fifths_of_the_squares():
    stored = coefficients(VALUES, MEAN, AXIS)
    assert stored.flatten().tolist() == [2, 0, -2, 0]
    back = expand_coefficients(stored, MEAN, AXIS)
    assert back[0].tolist() == [[2, 0], [0, 0], [-2, 0], [0, 0]]
    assert ((back - VALUES).square().sum() / VALUES.square().sum()).item() == pytest.approx(0.2)


def test_attention_adds_coefficients_up_and_expands_once():
    """Exactly (0.75, 0.125) is attended to; along one direction (0.75, 0)."""
    weights = torch.tensor([[0.5, 0.25, 0.125, 0.125]])
    assert (weights @ VALUES[0]).tolist() == [[0.75, 0.125]]
    attended = weights @ coefficients(VALUES, MEAN, AXIS)[0]
    assert expand_coefficients(attended[None], MEAN, AXIS)[0].tolist() == [[0.75, 0.0]]


def test_what_query_heads_attend_to_is_expanded_by_the_basis_of_their_kv_head():
    """The mean of decoded values by weights that sum to 1, whatever the weights of each query head."""
    prompt = a_prompt(7, dim=5, layers=1, kv_heads=2, q_heads=6)
    codec = Subspace(rank=3).codec({"bases": random_bases(prompt)})
    stored = codec.encode(0, prompt.values[0])
    weights = torch.rand(6, 4, 7, generator=torch.Generator().manual_seed(1)).softmax(-1)
    attended = torch.stack([weights[head] @ stored[head // 3] for head in range(6)])
    decoded = codec.decode(0, stored)
    expected = torch.stack([weights[head] @ decoded[head // 3] for head in range(6)])
    torch.testing.assert_close(codec.expand(0, attended), expected)
    both = codec.expand(0, torch.stack([attended, 2 * attended]))
    torch.testing.assert_close(both[0], expected)


def test_a_whole_basis_gives_every_value_back():
    prompt = a_prompt(9, dtype=torch.float64)
    bases = random_bases(prompt)
    exact = torch.linalg.qr(bases.basis.double())[0]
    codec = Subspace(rank=8).codec({"bases": Bases(bases.mean.double(), exact)})
    torch.testing.assert_close(codec.decode(1, codec.encode(1, prompt.values[1])), prompt.values[1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_coefficients_have_the_precision_of_the_values_and_are_formed_in_float32_or_better(dtype):
    prompt = a_prompt(40, dtype=dtype)
    bases = random_bases(prompt)
    codec = Coefficients(bases.mean, bases.basis[..., :4])
    stored = codec.encode(0, prompt.values[0])
    exact = coefficients(prompt.values[0].double(), bases.mean[0], bases.basis[0, ..., :4])
    assert stored.dtype == codec.decode(0, stored).dtype == dtype
    # Off by one rounding at the end; sums of rounded numbers are off by more.
    assert ((stored.double() - exact).abs() <= torch.finfo(dtype).eps * exact.abs() + 1e-6).all()


def test_a_slot_of_128_numbers_and_32_coefficients_is_1_6_times_smaller():
    """So 102 slots fit where 64 did, and 204 where 128 did; of heads of 64 three quarters are left."""
    state, plain = policies.get("subspace").state, policies.get("1d").state
    assert state.slot_bytes(128, 2) == 320
    assert [budget * plain.slot_bytes(128, 2) // state.slot_bytes(128, 2) for budget in (64, 128)] == [102, 204]
    assert state.slot_bytes(64, 4) / plain.slot_bytes(64, 4) == 0.75


def test_the_gate_keeps_what_its_parent_keeps_and_merges_nothing():
    prompt = a_prompt(200)
    parent, gate = policies.get("1d"), policies.get("subspace")
    assert policies.diff(gate, parent) == {"state": (gate.state, parent.state)}
    assert policies.diff(policies.get("full-subspace"), policies.get("full")).keys() == {"state"}
    view = a_view(prompt, [gate])
    event = gate.evict(view, 90)
    assert torch.equal(event.retained, parent.keep(view, 90))
    assert event.merging is None
    assert gate.needs - parent.needs == policies.get("full-subspace").needs == {Calibrated("bases", Bases)}


def test_what_does_not_fit_is_refused_with_the_fix():
    bases = random_bases(a_prompt(4))
    with pytest.raises(ValueError, match=r"state.statistics: no bases .* 'bases'; run: kv-prereg"):
        Subspace().codec({})
    with pytest.raises(ValueError, match=r"state.statistics: no bases .* 'text'"):
        Subspace(statistics="text").codec({"text": object(), "bases": bases})
    with pytest.raises(ValueError, match=r"state.rank: is 32, but 'bases' has 8 directions for"):
        Subspace().codec({"bases": bases})
    with pytest.raises(ValueError, match=r"the basis 'bases' is for \[2, 2, 8\] .* its mean is for \[2, 2, 7\]"):
        Subspace(rank=4).codec({"bases": replace_mean(bases)})


def replace_mean(bases):
    return bases._replace(mean=bases.mean[..., :7])


def test_a_rank_that_saves_nothing_is_refused_by_the_width_of_a_head():
    policy = policies.get("subspace")
    policy.refuse_width(64)
    for width in (32, 16):
        with pytest.raises(ValueError, match=f"state.rank: 32 .* save nothing for a value of {width} numbers"):
            policy.refuse_width(width)
    replace(policy, state=Subspace(rank=8)).refuse_width(32)
    policies.get("1d").refuse_width(1)
