"""A checkpoint compared with the network that transformers builds for it: what is missing would be random, and other at
each load; what is left over is part of another model.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import transformers
from safetensors import SafetensorError
from transformers.utils import logging

from protocol.formats.refusals import BadInput
from protocol.models import sources

LOADING: Mapping[str, Any] = MappingProxyType(
    {"use_safetensors": True, "local_files_only": True, "trust_remote_code": False, "output_loading_info": True}
)
"""How every checkpoint is loaded; the result is a network and what did not fit."""
LEFT_OUT = (
    *("repetition_penalty", "encoder_repetition_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size"),
    *("bad_words_ids", "suppress_tokens", "begin_suppress_tokens", "sequence_bias", "min_length", "min_new_tokens"),
    *("forced_bos_token_id", "forced_eos_token_id", "exponential_decay_length_penalty", "guidance_scale"),
    *("top_k", "min_p", "top_h", "typical_p", "epsilon_cutoff", "eta_cutoff", "num_beams", "penalty_alpha"),
)
"""Fields of generation_config.json that change which token `generate` chooses, and that the engine does not apply."""


def refuse_unfit(source: str, home: Path) -> None:
    """Raise BadInput for a checkpoint that is not that of its network, from the headers of its files."""
    folder = sources.locate(source, home)
    try:
        with quiet():
            _, info = transformers.AutoModelForCausalLM.from_pretrained(
                folder, device_map="meta", ignore_mismatched_sizes=True, **LOADING
            )
    except (SafetensorError, ValueError, OSError, ImportError) as error:
        raise BadInput(f"model {source}: transformers cannot load it: {' '.join(str(error).split())[:160]}") from None
    refuse_misfit(source, info)


def refuse_misfit(source: str, info: Mapping[str, Any]) -> None:
    """Raise BadInput for what did not fit when loading. info: what `LOADING` asks transformers for."""
    for field, says in (
        ("missing_keys", "has no weights for"),
        ("mismatched_keys", "has weights of another shape for"),
        ("unexpected_keys", "has weights that its network does not use:"),
    ):
        if names := sorted(name if isinstance(name, str) else name[0] for name in info[field]):
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise BadInput(
                f"model {source}: {says} {names[0]}{more}; choose a checkpoint that is complete and of the class in "
                "its config.json"
            )


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers from printing its progress and its report of a load, which a refusal replaces."""
    level, has_progress = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if has_progress:
            logging.enable_progress_bar()


def describe_left_out(source: str, home: Path) -> list[str]:
    """Say which settings of a model's generation_config.json the engine does not apply; none if there are none."""
    path = sources.locate(source, home) / "generation_config.json"
    if not path.is_file():
        return []
    defaults = transformers.GenerationConfig()
    written = json.loads(path.read_bytes())
    settings = [
        f"{name} {written[name]}"
        for name in LEFT_OUT
        if written.get(name) is not None and written[name] != getattr(defaults, name, None)
    ]
    if not settings:
        return []
    return [
        f"{source}: its generation_config.json sets {', '.join(settings)}, which no arm applies: [generation] alone "
        "says how tokens are chosen"
    ]
