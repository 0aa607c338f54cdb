"""The output projection, as signals are shown it."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from tiny_networks import DIM, FAMILIES, LAYERS, Q_HEADS, answer, lane, noted, outside, tiny, words
from torch import nn

from policies import Cadence, OutputSignal, Scores
from protocol.engine import Outcome, prefill
from protocol.engine.observation import observe_forward
from protocol.engine.output_projection import projection_weight
from protocol.formats.refusals import BadInput


@dataclass(frozen=True)
class Seen:
    """What it is shown."""

    def project(self, layer, keys, values, filled, output) -> Any:
        return layer, keys, values, filled, output


@dataclass(frozen=True)
class Reads:
    """Scores the later slots higher, and reads Seen."""

    needs = frozenset({Seen()})

    def score(self, view):
        assert [seen[0] for seen in view.signals[Seen()]] == list(range(LAYERS))
        return Scores(view.positions.double().expand(view.layers, view.kv_heads, -1))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_slices_of_all_query_heads_make_up_the_projection(family):
    model = tiny(family)
    attended = torch.randn(Q_HEADS, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for layer, block in enumerate(model.network.model.layers):
        slices = projection_weight(model, layer)
        assert slices.shape == (Q_HEADS, DIM, 64)
        whole = block.self_attn.o_proj(attended.flatten())
        parts = sum(attended[head] @ slices[head] for head in range(Q_HEADS))
        torch.testing.assert_close(parts, whole, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("chunk", [None, 7])
def test_a_prefill_shows_all_keys_and_values_of_each_layer_and_its_own_projection(chunk):
    model = tiny()
    with observe_forward(model.network), torch.no_grad():
        fed = prefill.feed(model, words(20), [Seen()], chunk=chunk)
    assert isinstance(Seen(), OutputSignal)
    for layer, (own, keys, values, filled, output) in enumerate(fed.signals[Seen()]):
        assert own == layer
        assert torch.equal(keys, fed.keys[layer])
        assert torch.equal(values, fed.values[layer])
        assert filled.all()
        assert filled.shape == keys.shape[:2]
        weight = model.network.model.layers[layer].self_attn.o_proj.weight
        assert torch.equal(output.permute(2, 0, 1).flatten(1), weight)
        assert output.data_ptr() == weight.data_ptr()  # not copied
    assert Seen() not in fed.states


def test_an_event_while_decoding_shows_the_slots_of_then():
    policy = noted(Reads(), cadence=Cadence(interval=4))
    (outcome,) = answer(tiny(), outside(20), [lane(policy, 12)], max_new_tokens=10)
    assert isinstance(outcome, Outcome), outcome
    shown = [view.signals[Seen()] for view, _ in policy.notes]
    assert [seen[0][1].shape[1] for seen in shown] == [20, 16, 16]
    assert all(one[3].all() for seen in shown for one in seen)


@pytest.mark.parametrize("without", [nn.Identity(), nn.Linear(DIM, 64, dtype=torch.float64)])
def test_a_model_without_such_a_projection_is_refused_before_anything_runs(without):
    model = tiny()
    model.network.model.layers[1].self_attn.o_proj = without
    lanes = [lane(noted(Reads()), 12)]
    with pytest.raises(BadInput) as refused:
        answer(model, outside(20), lanes, max_new_tokens=2)
    assert str(refused.value) == (
        "model tiny-Llama: layer 1 has no linear o_proj for its 4 heads, which a policy needs; choose a "
        "model that has one, or another policy"
    )
