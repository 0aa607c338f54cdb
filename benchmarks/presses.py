"""The methods that kvpress and we both have, each as kvpress' own pipeline runs it.

kvpress (github.com/NVIDIA/kvpress, version 0.5.5) is optional: install it apart, with a
transformers that it accepts (before 5.3), and put both on PYTHONPATH; the engine runs on that one too.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import requires, version
from importlib.util import find_spec
from typing import Any

import torch
from packaging.requirements import Requirement

from benchmarks.setting import Subject
from protocol.engine import Prompt

WINDOW = {"window_size": 32, "kernel_size": 5}  # SnapKV's settings here; kvpress takes 64

# Ours -> its press, given the package and the share of the slots to drop. Left out are h2o, which needs
# eager attention there, and pyramidkv, whose layers of unequal length its pipeline gives one mask under sdpa.
SHARED: Mapping[str, Callable[[Any, float], Any]] = {
    "random": lambda kvpress, drop: kvpress.RandomPress(drop, seed=0),
    "streaming": lambda kvpress, drop: kvpress.StreamingLLMPress(drop, n_sink=4),
    "snapkv": lambda kvpress, drop: kvpress.SnapKVPress(drop, **WINDOW),
    "tova": lambda kvpress, drop: kvpress.TOVAPress(drop),
    "knorm": lambda kvpress, drop: kvpress.KnormPress(drop),
    "keydiff": lambda kvpress, drop: kvpress.KeyDiffPress(drop),
    "chunkkv": lambda kvpress, drop: kvpress.ChunkKVPress(kvpress.SnapKVPress(drop, **WINDOW), chunk_length=10),
    "ada-snapkv": lambda kvpress, drop: kvpress.AdaKVPress(kvpress.SnapKVPress(drop, **WINDOW), alpha_safeguard=0.2),
}


def obstacle() -> str | None:
    """Why kvpress cannot run here, if so."""
    if find_spec("kvpress") is None:
        return "it cannot be imported; put a folder that holds it on PYTHONPATH"
    installed = version("transformers")
    for requirement in map(Requirement, requires("kvpress") or ()):
        if requirement.name == "transformers" and not requirement.specifier.contains(installed):
            return f"it needs {requirement}, {installed} is installed; put one that fits on PYTHONPATH"
    return None


def runs(
    subject: Subject, prompt: Prompt, names: list[str], shares: list[float], new_tokens: int
) -> Callable[[], None]:
    """Every method at every kept share, one after the other, from the same token ids as the engine's."""
    kvpress = import_module("kvpress")
    pipeline = kvpress.KVPressTextGenerationPipeline(model=subject.network, tokenizer=subject.tokenizer)
    context, query = (torch.tensor([part]) for part in (prompt.context, prompt.query))
    presses = [SHARED[name](kvpress, 1 - share) for name in names for share in shares]

    def act() -> None:
        for press in presses:
            fed = {"context_ids": context, "questions_ids": [query]}
            pipeline.forward(fed, max_new_tokens=new_tokens, press=press)

    return act
