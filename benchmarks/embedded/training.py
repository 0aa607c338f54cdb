"""What both training scripts share: the network of a recipe, the command line, and the folder that is left."""

import argparse
import json
import sys
from collections.abc import Collection, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, ClassVar, Protocol

import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from protocol.models import checksums

FAMILIES = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
}
NOT_SCORED = -100  # the label that cross_entropy leaves out


class Recipe(Protocol):
    """A dataclass, of which all fields but `family` have a default."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def family(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def layers(self) -> int: ...
    @property
    def heads(self) -> int: ...
    @property
    def kv_heads(self) -> int: ...


def build(recipe: Recipe, words: PreTrainedTokenizerFast) -> PreTrainedModel:
    """Return a network with as many positions as its tokenizer has tokens at most, drawn from the recipe's seed."""
    config, network = FAMILIES[recipe.family]
    torch.manual_seed(recipe.seed)
    # The default of this family is no share of the width.
    head_dim = {"head_dim": recipe.width // recipe.heads} if recipe.family == "qwen3" else {}
    made = network(
        config(
            vocab_size=len(words),
            hidden_size=recipe.width,
            intermediate_size=4 * recipe.width,
            num_hidden_layers=recipe.layers,
            num_attention_heads=recipe.heads,
            num_key_value_heads=recipe.kv_heads,
            max_position_embeddings=words.model_max_length,
            bos_token_id=words.bos_token_id,
            eos_token_id=words.eos_token_id,
            pad_token_id=words.pad_token_id,
            tie_word_embeddings=False,
            **head_dim,
        )
    )
    assert isinstance(made, PreTrainedModel)
    return made


def make_parser(
    script: str, description: str | None, recipe: type[Recipe], families: Collection[str]
) -> argparse.ArgumentParser:
    """Return the parser of a family, a folder and every field of the recipe."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.embedded.{script}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("family", choices=sorted(families))
    parser.add_argument("folder", type=Path, help="must not exist yet")
    for field in fields(recipe)[1:]:
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=type(field.default), default=field.default)
    return parser


def read_arguments(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> dict[str, Any] | None:
    """Return the arguments by name; None, said in a line, where the folder exists."""
    given = vars(parser.parse_args(argv))
    if given["folder"].exists():
        print(f"{given['folder']}: exists; name a new folder", file=sys.stderr)
        return None
    return given


def save(
    network: PreTrainedModel,
    words: PreTrainedTokenizerFast,
    recipe: Recipe,
    history: list[dict[str, Any]],
    folder: Path,
    **more: str,
) -> None:
    """Write a folder that transformers loads, and the digests of its files. more: fields of training.json."""
    network.save_pretrained(folder)
    words.save_pretrained(folder)
    record = {"recipe": asdict(recipe), "torch": str(torch.__version__), "history": history, **more}
    (folder / "training.json").write_text(json.dumps(record, indent=1) + "\n")
    checksums.write_sums(folder)
