"""The engine's attention is a guest in transformers: it adds a name and changes nothing of anybody else's."""

import importlib.util
import pkgutil

import pytest
import torch
from tiny_networks import Earliest, Exhausted, all_kept, answer, drawn, lane, noted, outside, tiny
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from policies.signals import HiddenChange
from protocol import engine
from protocol.engine import observation
from protocol.formats.refusals import BadInput


def logits(model):
    with torch.no_grad():
        return model.network(torch.tensor([outside(40).context])).logits


def hooks(model):
    return [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.network.modules()]


def test_other_models_and_the_model_itself_compute_the_same_before_and_after():
    used, other = tiny(), tiny()
    before = logits(used)
    functions, masks = dict(ALL_ATTENTION_FUNCTIONS), dict(ALL_MASK_ATTENTION_FUNCTIONS)
    watcher = noted(Earliest(frozenset({HiddenChange((1,), None)})))
    answer(used, outside(40), [lane(drawn(), 5), lane(watcher, 5)], max_new_tokens=3)
    after = dict(ALL_ATTENTION_FUNCTIONS)
    assert after.pop(observation.ATTENTION_NAME) is observation.attention
    functions.pop(observation.ATTENTION_NAME, None)
    assert after == functions
    assert dict(ALL_MASK_ATTENTION_FUNCTIONS) == masks
    assert used.network.config._attn_implementation == "sdpa"
    assert hooks(used) == hooks(other)
    for model in (used, other, tiny()):
        assert torch.equal(logits(model), before)


def test_the_model_is_given_back_as_it_was_when_a_run_breaks():
    model = tiny()
    model.network.set_attn_implementation("eager")
    lanes = [lane(noted(Earliest(frozenset({HiddenChange((1,), None)}))), 5), lane(noted(Exhausted()), 5)]
    with pytest.raises(MemoryError):
        answer(model, outside(40), lanes, max_new_tokens=3)
    assert model.network.config._attn_implementation == "eager"
    assert hooks(model) == hooks(tiny())


def test_a_layer_that_is_not_there_leaves_no_hook_on_those_that_are():
    model = tiny()
    missing = [lane(noted(Earliest(frozenset({HiddenChange((layer,), None)}))), 5) for layer in (0, 3)]
    with pytest.raises(BadInput):
        answer(model, outside(40), missing, max_new_tokens=3)
    assert hooks(model) == hooks(tiny())
    assert model.network.config._attn_implementation == "sdpa"


def test_importing_the_engine_registers_nothing():
    """Every module of it is executed once more, beside the one that was imported."""
    before = dict(ALL_ATTENTION_FUNCTIONS)
    names = [module.name for module in pkgutil.iter_modules(engine.__path__, "protocol.engine.")]
    for spec in map(importlib.util.find_spec, ["protocol.engine", *names]):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    assert "protocol.engine.observation" in names
    assert dict(ALL_ATTENTION_FUNCTIONS) == before


def test_attention_that_is_not_plain_softmax_is_refused():
    with pytest.raises(BadInput, match="the model's attention uses softcap"):
        observation.attention(None, None, None, None, None, scaling=1.0, observer=None, softcap=30.0)


def test_a_model_that_does_not_ask_the_attention_interface_is_refused(monkeypatch):
    model = tiny()
    monkeypatch.setattr(type(model.network), "set_attn_implementation", lambda network, name: None)
    with pytest.raises(BadInput, match="model tiny-Llama: bypasses transformers' attention interface"):
        answer(model, outside(40), [lane(all_kept())], max_new_tokens=2)


@pytest.mark.parametrize("chunk", [None, 4])
def test_a_layer_that_attends_twice_is_refused(chunk):
    """DiffLlama: the difference of two softmaxes, whose second would overwrite the slots of the first."""
    with pytest.raises(BadInput, match="calls attention more than once in a layer"):
        answer(tiny("DiffLlama"), outside(9), [lane(all_kept())], max_new_tokens=2, prefill_chunk=chunk)
