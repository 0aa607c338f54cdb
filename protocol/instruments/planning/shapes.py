"""The shape of a model from its configuration: sizes of its weights, a token and a slot."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers

from protocol.formats.refusals import BadInput
from protocol.instruments.planning.roofline import Shape
from protocol.layers.layer_kinds import head_width
from protocol.models import sources
from protocol.models.load import DTYPES

DATA = Path(__file__).with_name("shapes.toml")
NEEDED = (
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "hidden_size",
    "intermediate_size",
    "vocab_size",
)


class ModelConfig(NamedTuple):
    config: Any
    source: str  # the origin of the configuration, for a reader


def find_config(model: str, home: Path, path: Path | None = None) -> ModelConfig:
    """Return the configuration of a model: from `path`, the fetched model, or the known shapes. Raises BadInput."""
    if path is not None:
        return ModelConfig(_read_config(path), str(path))
    try:
        return ModelConfig(transformers.AutoConfig.from_pretrained(sources.locate(model, home)), "here")
    except BadInput:
        repository = getattr(sources.parse(model), "repo", "")
    tables = {name.lower(): table for name, table in tomllib.loads(DATA.read_text("utf-8")).items()}
    if (table := tables.get(repository.lower())) is None:
        raise BadInput(
            f"model {model}: is not on this machine and its shape is not known; give its config.json: --shape "
            f"{model}=config.json"
        )
    return ModelConfig(_make_config(table, model), "protocol/instruments/planning/shapes.toml")


def _read_config(path: Path) -> Any:
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise BadInput(f"--shape {path}: no such file; give the config.json of the model") from None
    except (ValueError, RecursionError):
        raise BadInput(f"--shape {path}: is not JSON; give the config.json of the model") from None
    if not isinstance(table, dict) or not isinstance(table.get("model_type"), str):
        raise BadInput(f"--shape {path}: has no model_type; give the config.json of the model")
    return _make_config(table, str(path))


def _make_config(table: dict[str, Any], name: str) -> Any:
    kind = table["model_type"]
    try:
        config = transformers.AutoConfig.for_model(**table)
    except (ValueError, TypeError) as refusal:
        message = " ".join(str(refusal).split())
        raise BadInput(f"--shape {name}: transformers has no model of type {kind!r}: {message[:120]}") from None
    if missing := [field for field in NEEDED if not isinstance(getattr(config, field, None), int)]:
        raise BadInput(f"--shape {name}: has no {missing[0]}, which the estimate needs")
    return config


def shape_of(config: Any, dtype: str) -> Shape:
    """Count parameters on the meta device, for any architecture; tied embeddings count once.

    All experts count as bytes, but only those used for a token count as FLOP.
    """
    with torch.device("meta"):
        network = transformers.AutoModelForCausalLM.from_config(config, dtype=DTYPES[dtype])
    head, embedded = network.get_output_embeddings(), network.get_input_embeddings()
    outside = {id(tensor.weight) for tensor in (head, embedded) if tensor is not None}
    linear = sum(tensor.numel() for tensor in network.parameters() if tensor.dim() == 2 and id(tensor) not in outside)
    experts = sum(
        tensor.numel()
        for name, tensor in network.named_parameters()
        if re.search("experts", name) and tensor.dim() == 3
    )
    count = getattr(config, "num_experts", None) or getattr(config, "num_local_experts", None) or 1
    linear += experts * int(getattr(config, "num_experts_per_tok", None) or 1) // int(count)
    return Shape(
        layers=config.num_hidden_layers,
        q_heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_dim=head_width(config),
        width=config.hidden_size,
        intermediate=config.intermediate_size,
        vocabulary=config.vocab_size,
        weights=sum(tensor.numel() for tensor in network.parameters()),
        linear=linear,
        head=0 if head is None else head.weight.numel(),
        itemsize=DTYPES[dtype].itemsize,
    )
