"""A trial of a model's family before anything is locked: a small random network of its class runs in the engine.

Whether transformers computes the same text for a lane alone and in company, in one chunk and in several, with
its own attention and with that of the engine, depends on a class and its configuration. It is tried here on
random weights in float64, rather than known from a list of names.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import transformers
from huggingface_hub.errors import StrictDataclassError

import policies
from protocol import engine
from protocol.engine import prefill
from protocol.engine.observation import observe_forward
from protocol.formats.refusals import BadInput
from protocol.layers.layer_kinds import head_width, layers_of

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

# Errors of an architecture that is built or called in an unknown way.
UNSUPPORTED_CALL = (
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    RuntimeError,
    NotImplementedError,
    IndexError,
    AssertionError,
    ImportError,
    StrictDataclassError,
)
VOCABULARY = 97
MAX_LAYERS = 8  # of a small network; more only if a kind of layer comes later
KV_HEADS, GROUPS = 2, 4  # the most, and query heads of each
WINDOW = 8  # of sliding layers
TEXT = [(17 * index) % (VOCABULARY - 1) + 1 for index in range(24)]  # longer than the window
NEW_TOKENS = 6
TOLERANCE = 1e-4  # of a logit, in units of the largest: routers of experts compute in float32
NARROWED: Mapping[str, int] = MappingProxyType(
    {
        **dict.fromkeys(("intermediate_size", "moe_intermediate_size", "shared_expert_intermediate_size"), 64),
        **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 16),
    }
)
"""The largest sizes of the feed-forward part of a small network, on which no attention depends."""


class SmallModel(NamedTuple):
    """The part of a loaded model that the engine uses."""

    name: str
    network: PreTrainedModel
    stop_ids: frozenset[int] = frozenset()
    sentence_ends: frozenset[int] = frozenset()
    statistics: Mapping[str, Any] = MappingProxyType({})

    def lines(self, token_ids: Any, mark: Any) -> tuple[range, ...]:
        return ()


def refuse_unlike(name: str, config: PreTrainedConfig) -> None:
    """Raise BadInput if a small network of this class and configuration does not run as transformers runs it."""
    if fault := find_fault(name, config):
        raise BadInput(f"model {name}: {fault}; choose another model")


def find_fault(name: str, config: PreTrainedConfig) -> str:
    """Return what a small network of this class computes otherwise, or why it does not run; "" if it is right."""
    try:
        model = SmallModel(name, small_network(config))
        return next(_differences(model), "")
    except BadInput as refusal:
        return str(refusal).removeprefix(f"model {name}: ").removeprefix("the model's ")
    except UNSUPPORTED_CALL as error:
        reason = " ".join(str(error).split())[:160]
        return f"cannot be called as the engine calls models ({type(error).__name__}: {reason})"


def small_network(config: PreTrainedConfig) -> PreTrainedModel:
    """Return a random network in float64 with the kinds of layers, the width of a head and the settings of a
    configuration, and fewer layers, heads, words and feed-forward units.
    """
    small = copy.deepcopy(config)
    kinds = layers_of(config).kinds
    depth = min(len(kinds), max(map(kinds.index, set(kinds)), default=0) + 2, MAX_LAYERS)
    small.num_hidden_layers = depth
    if getattr(small, "layer_types", None):
        small.layer_types = list(kinds[:depth])
    if getattr(small, "mlp_layer_types", None):
        small.mlp_layer_types = small.mlp_layer_types[:depth]
    if (window := layers_of(config).window) is not None:
        small.sliding_window = min(window, WINDOW)
    groups = min(config.num_attention_heads // config.num_key_value_heads, GROUPS)
    small.num_key_value_heads = min(config.num_key_value_heads, KV_HEADS)
    small.num_attention_heads = groups * small.num_key_value_heads
    small.hidden_size = small.num_attention_heads * head_width(config)  # of which some classes derive the width
    small.vocab_size = VOCABULARY
    for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
        if getattr(small, name, None) is not None:
            setattr(small, name, 0)
    for name, most in NARROWED.items():
        if isinstance(size := getattr(small, name, None), int):
            setattr(small, name, min(size, most))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = transformers.AutoModelForCausalLM.from_config(
            small,
            attn_implementation="eager",
            experts_implementation="eager",  # the fused one has no float64
            dtype=torch.float64,
        )
        for parameter in network.parameters():
            if parameter.dim() > 1:  # wide, so that attention is sharp and a difference reaches the logits
                torch.nn.init.normal_(parameter, std=3 / parameter.shape[-1] ** 0.5)
    return network.eval().requires_grad_(False)


def _differences(model: SmallModel) -> Iterator[str]:
    network = model.network
    with torch.no_grad():
        own = network(input_ids=torch.tensor([TEXT]), use_cache=False).logits[0, -1]
        with observe_forward(network):
            whole = prefill.feed(model, TEXT, (), chunk=None).logits
            chunked = prefill.feed(model, TEXT, (), chunk=7).logits
    if not _is_close(whole, own):
        yield "computes different logits with the engine's attention than with its own"
    if not _is_close(chunked, whole):
        yield "computes different logits from a prompt in chunks than from the whole prompt"
    short = TEXT[:5]
    alone = _decode(model, [short])[0]
    if alone != _decode(model, [TEXT, short])[1]:
        yield "gives a lane different text in a batch than alone"
    if alone != _greedy(network, short):
        yield "gives different text with the engine's cache than without a cache"


def _is_close(values: torch.Tensor, expected: torch.Tensor) -> bool:
    return bool((values - expected).abs().max() <= TOLERANCE * expected.abs().max())


def _decode(model: SmallModel, texts: list[list[int]]) -> list[tuple[int, ...]]:
    """Return the greedy text of each prompt, all in one batch. Raises BadInput for a lane that fails."""
    lane = engine.Lane("full", policies.get("full"), None, 0)
    requests = [engine.Request(str(index), engine.Prompt(tuple(text), ()), (lane,)) for index, text in enumerate(texts)]
    result = engine.run(model, requests, max_new_tokens=NEW_TOKENS, max_concurrent=len(texts))
    answers = []
    for (outcome,) in (answer.outcomes for answer in result.answers):
        if isinstance(outcome, engine.LaneFailure):
            raise BadInput(outcome.reason)
        answers.append(outcome.token_ids)
    return answers


def _greedy(network: PreTrainedModel, text: list[int]) -> tuple[int, ...]:
    """Return the greedy text of a prompt, which is read again for every token."""
    token_ids = list(text)
    with torch.no_grad():
        for _ in range(NEW_TOKENS):
            logits = network(input_ids=torch.tensor([token_ids]), use_cache=False).logits[0, -1]
            token_ids.append(int(logits.argmax()))
    return tuple(token_ids[len(text) :])
