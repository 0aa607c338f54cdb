"""The engine's attention is a guest in transformers: it adds a name and changes nothing of anybody else's."""

import subprocess
import sys

import pytest
import torch
from tiny_networks import Counting, Drawn, Full, Refusing, Watching, lane, outside, tiny
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from protocol import engine
from protocol.engine import observation
from protocol.evidence.refusals import BadInput


def logits(model):
    with torch.no_grad():
        return model.network(torch.tensor([outside(40).context])).logits


def test_other_models_and_the_model_itself_compute_the_same_before_and_after():
    used, other = tiny(), tiny()
    before = logits(used)
    functions, masks = dict(ALL_ATTENTION_FUNCTIONS), dict(ALL_MASK_ATTENTION_FUNCTIONS)
    engine.run(used, outside(40), [lane(Drawn(), 5)], problem="p", max_new_tokens=3)
    after = dict(ALL_ATTENTION_FUNCTIONS)
    assert after.pop(observation.NAME) is observation.attention
    functions.pop(observation.NAME, None)
    assert after == functions
    assert dict(ALL_MASK_ATTENTION_FUNCTIONS) == masks
    assert used.network.config._attn_implementation == "sdpa"
    for model in (used, other, tiny()):
        assert torch.equal(logits(model), before)


def test_the_model_is_given_back_as_it_was_when_a_run_breaks():
    class Faulty(Refusing):
        def keep(self, view, budget):
            raise KeyError("x")

    model = tiny()
    model.network.set_attn_implementation("eager")
    with pytest.raises(KeyError):
        engine.run(model, outside(40), [lane(Faulty(), 5)], problem="p", max_new_tokens=3)
    assert model.network.config._attn_implementation == "eager"


def test_importing_the_engine_registers_nothing():
    script = (
        "from transformers import AttentionInterface\n"
        "before = dict(AttentionInterface())\n"
        "import protocol.engine\n"
        "assert dict(AttentionInterface()) == before\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_attention_that_is_not_plain_softmax_is_refused():
    with pytest.raises(BadInput, match="the model's attention uses softcap"):
        observation.attention(None, None, None, None, None, scaling=1.0, passenger=None, softcap=30.0)


def test_a_model_that_does_not_ask_the_attention_interface_is_refused(monkeypatch):
    model = tiny()
    monkeypatch.setattr(type(model.network), "set_attn_implementation", lambda network, name: None)
    with pytest.raises(BadInput, match="model tiny-Llama: bypasses transformers' attention interface"):
        engine.run(model, outside(40), [lane(Full())], problem="p", max_new_tokens=2)


class Largest(TorchDispatchMode):
    """The most elements that any one operation has returned."""

    def __init__(self):
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, tuple | list) else (made,):
            if isinstance(tensor, torch.Tensor):
                self.numel = max(self.numel, tensor.numel())
        return made


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_tensor_of_the_square_of_the_prompt_is_made(dtype):
    n = 480
    model = tiny(dtype=dtype)
    lanes = [lane(Full()), lane(Watching(frozenset({Counting("a")})), 30)]
    with Largest() as seen:
        engine.run(model, outside(n, 2), lanes, problem="p", max_new_tokens=2)
    assert n * 96 <= seen.numel < n * n, "the widest activation has 96 columns"


def test_the_square_would_be_noticed():
    queries = torch.ones(1, 1, 480, 16)
    with Largest() as seen:
        torch.softmax(queries @ queries.transpose(2, 3), -1)
    assert seen.numel == 480 * 480
