"""Open a fetched model. Nothing is downloaded, no pickle is read and no code of a model repository is run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from protocol.evidence.refusals import BadInput
from protocol.models import catalogue, stored

__all__ = ["LoadedModel", "load", "tokenizer"]

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
SENTENCE_ENDS = (".", "!", "?", "\n")


@dataclass(frozen=True)
class LoadedModel:
    """A model ready to run: in evaluation mode, without gradients, with the fused attention kernel (sdpa).

    stop_ids: tokens that end an answer. sentence_ends: the tokens that are exactly ".", "!", "?" or a line
    feed; a mark that the tokenizer has no single token for is left out.
    """

    name: str
    network: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    stop_ids: frozenset[int]
    sentence_ends: frozenset[int]


def load(source: str, home: Path, *, dtype: str = "float32", device: str = "cpu") -> LoadedModel:
    """Raises BadInput for an unknown source or dtype or a model not fetched, Drifted for a damaged file."""
    if dtype not in DTYPES:
        raise BadInput(f"dtype {dtype!r}: not one of {', '.join(DTYPES)}")
    folder = _verified(source, home)
    network = AutoModelForCausalLM.from_pretrained(
        folder,
        dtype=DTYPES[dtype],
        attn_implementation="sdpa",
        use_safetensors=True,
        local_files_only=True,
        trust_remote_code=False,
    )
    network.to(device).eval().requires_grad_(False)
    words = _tokenizer(folder)
    return LoadedModel(source, network, words, _stop_ids(network, words), _sentence_ends(words))


def tokenizer(source: str, home: Path) -> PreTrainedTokenizerBase:
    """The tokenizer alone, for counting tokens without opening the weights."""
    return _tokenizer(catalogue.locate(source, home))


def _verified(source: str, home: Path) -> Path:
    folder = catalogue.locate(source, home)
    if not isinstance(catalogue.parse(source), catalogue.Folder):
        stored.verify(folder, source)
    return folder


def _tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)


def _stop_ids(network: Any, words: Any) -> frozenset[int]:
    declared = network.generation_config.eos_token_id
    ids = declared if isinstance(declared, list) else [declared]
    return frozenset(stop for stop in [*ids, words.eos_token_id] if stop is not None)


def _sentence_ends(words: Any) -> frozenset[int]:
    spelled = (words.encode(mark, add_special_tokens=False) for mark in SENTENCE_ENDS)
    return frozenset(ids[0] for ids in spelled if len(ids) == 1 and ids[0] != words.unk_token_id)
