"""Models whose rotary embedding is not the one that policies turn by."""

import sys

import pytest
import torch
from tiny_networks import DIM, answer, lane, outside, tiny

import policies
from protocol.engine.rotation import rotates_halves, rotation_of
from protocol.formats.refusals import BadInput
from protocol.run import statistics_measurement as calibrate

UNLIKE = ("Cohere", "Helium", "Ernie4_5")


def unlike(family):
    return tiny(family, num_hidden_layers=4, pad_token_id=0)


@pytest.mark.parametrize("family", UNLIKE)
def test_a_model_that_turns_neighbours_is_not_turned_by_halves(family):
    """Its frequencies are as many as those of a model that turns halves; what it makes of a key is not."""
    network, key = unlike(family).network, torch.randn(1, 1, 1, DIM, dtype=torch.float64)
    own, halves = (sys.modules[type(net.base_model).__module__] for net in (network, tiny().network))
    assert 2 * len(network.base_model.rotary_emb.inv_freq) == DIM
    place = torch.tensor([[9]])
    cosine, sine = network.base_model.rotary_emb(key, place)
    turned = own.apply_rotary_pos_emb(key, key, cosine, sine)[0]
    cosine, sine = tiny().network.base_model.rotary_emb(key, place)
    assert not torch.allclose(turned, halves.apply_rotary_pos_emb(key, key, cosine, sine)[0], atol=1e-3)
    assert rotation_of(network) is None


def test_nor_is_one_with_a_layer_that_turns_nothing():
    network = unlike("SmolLM3").network
    assert [block.self_attn.use_rope for block in network.base_model.layers] == [1, 1, 1, 0]
    assert rotation_of(network) is None
    assert rotation_of(tiny("SmolLM3", num_hidden_layers=3, pad_token_id=0).network) is not None


@pytest.mark.parametrize("family", ["Llama", "Qwen2", "Qwen3", "Mistral"])
def test_the_supported_families_are(family):
    assert rotates_halves(tiny(family).network)


@pytest.mark.parametrize("name", ["expected-attention", "1d", "static_route"])
def test_policies_that_turn_queries_are_refused_of_such_a_model_before_anything_runs(name):
    wanted = policies.get(name).calibrated
    kinds = {signal.name: signal.kind(*[None] * len(signal.kind._fields)) for signal in wanted}
    model = unlike("Cohere")._replace(statistics=kinds)
    with pytest.raises(BadInput, match="does not rotate the halves of a head alike in all layers"):
        answer(model, outside(20), [lane(policies.get(name), 12)], max_new_tokens=2)


def test_nor_are_statistics_of_its_queries_measured():
    with pytest.raises(BadInput, match="does not rotate the halves of a head in every layer"):
        calibrate.refuse_other_rotation(unlike("Helium"))
    calibrate.refuse_other_rotation(tiny())
