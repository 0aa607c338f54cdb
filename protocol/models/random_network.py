"""A small random network with a model's architecture, to test what holds by construction."""

from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from protocol.layers.layer_kinds import FULL, SLIDING, layers_of
from protocol.models import load, sources
from protocol.models.load import LoadedModel

SMALL_CONFIG = {
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 8,
    "num_hidden_layers": 3,
}


def build_random_model(source: str, home: Path) -> LoadedModel:
    """Build three layers of four KV heads with the tokenizer of `source`, on the CPU in float32; the weights
    are the same each time. It has no statistics, and no stop token. The weights of `source` are not read.
    """
    config = AutoConfig.from_pretrained(sources.locate(source, home))
    for name, value in SMALL_CONFIG.items():
        setattr(config, name, value)
    if (layers := layers_of(config)).window is not None:
        config.layer_types = [SLIDING, FULL, FULL]
    elif getattr(config, "layer_types", None):
        config.layer_types = list(layers.kinds[: SMALL_CONFIG["num_hidden_layers"]])
    config.initializer_range = 0.3  # so that attention is far from uniform
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa", dtype=torch.float32)
    network.eval().requires_grad_(False)
    model_tokenizer = load.tokenizer(source, home)
    return LoadedModel(source, network, model_tokenizer, frozenset(), load.sentence_ends(model_tokenizer))
