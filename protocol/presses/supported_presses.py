"""The presses of kvpress 0.5.5: which of them run as an arm, and why the others do not."""

from collections.abc import Mapping
from types import MappingProxyType

from protocol.formats.suggestions import unknown_message

PREFIX = "kvpress:"

RUNNABLE = (
    "AdaKVPress",
    "BlockPress",
    "CURPress",
    "CapPress",
    "ChunkKVPress",
    "ChunkPress",
    "CompactorPress",
    "CriticalAdaKVPress",
    "CriticalKVPress",
    "EntropyGatedChunkKVPress",
    "ExpectedAttentionPress",
    "KeyDiffPress",
    "KeyRerotationPress",
    "KnormPress",
    "LagKVPress",
    "LeverageScorePress",
    "MergingPress",
    "NonCausalAttnPress",
    "ObservedAttentionPress",
    "PerLayerCompressionPress",
    "PyramidKVPress",
    "RandomPress",
    "SimLayerKVPress",
    "SnapKVPress",
    "StreamingLLMPress",
    "TOVAPress",
    "ThinKPress",
)
EAGER = frozenset({"ObservedAttentionPress"})
"""Presses that read attention weights, which transformers returns only with eager attention."""
MASKING = frozenset({"AdaKVPress", "CriticalAdaKVPress"})
"""Presses that store every slot and mask the evicted ones."""
RENUMBERING = frozenset({"KeyRerotationPress"})
"""Presses that rotate their keys to the positions 0, 1, 2, ...; later tokens are numbered after these."""

HUB = "downloads what was trained or measured for a model"
DECODING = "compresses while decoding, in its own generation loop, but the press of an arm compresses the prompt"
REPLAY = "feeds the context again with its own texts, using a tokenizer that it looks up"
REFUSED: Mapping[str, str] = MappingProxyType(
    {
        "BasePress": "is the base class of all presses, not a method",
        "CAMPress": DECODING,
        "ComposedPress": "is a list of presses, which settings cannot express",
        "CompressionRatioDecodingPress": DECODING,
        "DMSPress": "evicts by a threshold while decoding, and masks by its own stored indices",
        "DecodingPress": DECODING,
        "DuoAttentionPress": HUB,
        "ExpectedAttentionStatsPress": HUB,
        "FastKVzipPress": HUB,
        "FinchPress": "needs a delimiter token between context and question, which prompts here do not have",
        "KVComposePress": "must be called by its own pipeline, with its own texts",
        "KVgradPress": REPLAY,
        "KVzapPress": HUB,
        "KVzipPress": REPLAY,
        "LUKVPress": HUB,
        "PrefillDecodingPress": DECODING,
        "QFilterPress": HUB,
        "RestoreKVPress": HUB,
        "ScorerPress": "is the base class of scoring presses, not a method",
    }
)


def refuse_unrunnable(name: str) -> None:
    """Raise ValueError, with the reason, for a press that does not run as an arm."""
    if name in REFUSED:
        raise ValueError(f"{name} {REFUSED[name]}; choose another press")
    if name not in RUNNABLE:
        raise ValueError(unknown_message("press", name, RUNNABLE, "docs/presses.md"))
