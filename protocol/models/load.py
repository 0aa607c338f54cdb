"""Load a fetched model. Nothing is downloaded, no pickle is read and no code of a model repository is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from protocol.evidence.invariants import vocabulary
from protocol.formats.refusals import BadInput
from protocol.models import calibration, checkpoint, checksums, marked_lines, sources

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from policies import Mark

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
SENTENCE_ENDS = (".", "!", "?", "\n")


@dataclass(frozen=True)
class LoadedModel:
    """A model ready to run: in evaluation mode, without gradients, with the fused attention kernel (sdpa).

    stop_ids: tokens that end an answer. sentence_ends: the tokens that are exactly ".", "!", "?" or a line feed; a mark
    without a single token is left out. statistics: calibrated values by name, on the device of the weights.
    """

    name: str
    network: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    stop_ids: frozenset[int]
    sentence_ends: frozenset[int]
    statistics: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    @cached_property
    def answer_marks(self) -> frozenset[int]:
        """Tokens that end the thinking; empty if the tokenizer has none."""
        return answer_marks(self.tokenizer)

    def lines(self, token_ids: Sequence[int], mark: Mark) -> tuple[range, ...]:
        """Return the tokens of every marked stretch of this text, oldest first."""
        return marked_lines.find_lines(self._reader.decode_text(token_ids), mark)

    @cached_property
    def _reader(self) -> marked_lines.TokenReader:
        return marked_lines.make_reader(self.tokenizer)


def load(source: str, home: Path, *, dtype: str = "float32", device: str = "cpu") -> LoadedModel:
    """Load a model. Raises BadInput if it is unknown, not fetched or has other statistics, Drifted if damaged."""
    if dtype not in DTYPES:
        raise BadInput(f"dtype {dtype!r}: write one of {', '.join(DTYPES)}")
    folder = _verify_folder(source, home)
    from transformers import AutoModelForCausalLM  # slow: imports the modules of all models

    with checkpoint.quiet():
        network, info = AutoModelForCausalLM.from_pretrained(
            folder, dtype=DTYPES[dtype], attn_implementation="sdpa", **checkpoint.LOADING
        )
    checkpoint.refuse_misfit(source, info)
    network.to(device).eval().requires_grad_(False)
    model_tokenizer = _tokenizer(folder)
    statistics = calibration.load_calibrated(source, home, network)
    return LoadedModel(
        source,
        network,
        model_tokenizer,
        _stop_ids(network, model_tokenizer),
        sentence_ends(model_tokenizer),
        statistics,
    )


def tokenizer(source: str, home: Path) -> PreTrainedTokenizerBase:
    """Return the tokenizer alone, for counting tokens without loading the weights."""
    return _tokenizer(sources.locate(source, home))


def _verify_folder(source: str, home: Path) -> Path:
    folder = sources.locate(source, home)
    if not isinstance(sources.parse(source), sources.Folder):
        checksums.verify(folder, source, sources.repair_hint(source, home))
    return folder


def _tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """Load tokenizer.json unchanged, if it exists: from the model type alone transformers 5 would build
    another pre-tokenizer and other merges (every Qwen2 gets those of Qwen2Tokenizer).
    """
    if (folder / "tokenizer.json").is_file():
        return PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
    return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)


def _stop_ids(network: Any, model_tokenizer: Any) -> frozenset[int]:
    declared = network.generation_config.eos_token_id
    ids = declared if isinstance(declared, list) else [declared]
    return frozenset(stop for stop in [*ids, model_tokenizer.eos_token_id] if stop is not None)


def sentence_ends(model_tokenizer: Any) -> frozenset[int]:
    """Return `LoadedModel.sentence_ends` of a tokenizer."""
    encodings = (model_tokenizer.encode(mark, add_special_tokens=False) for mark in SENTENCE_ENDS)
    return frozenset(ids[0] for ids in encodings if len(ids) == 1 and ids[0] != model_tokenizer.unk_token_id)


def answer_marks(model_tokenizer: Any) -> frozenset[int]:
    """Return `LoadedModel.answer_marks` of a tokenizer, as defined by `vocabulary.answer_marks`."""
    token_ids: Mapping[str, int] = model_tokenizer.get_vocab()
    return frozenset(token_ids[piece] for piece in vocabulary.find_answer_marks(token_ids))
