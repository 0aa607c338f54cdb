"""A press as the policy of an arm, and the slots that it leaves of a context."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from policies import Policy, Signal, Verbatim
from policies.policy import Promises
from protocol.presses import press_settings, supported_presses

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class LanePrefill(NamedTuple):
    """The slots that a press leaves, unchanged and in its order.

    keys, values: one tensor for each layer, [kv_head, n, d]. hidden: slots that are stored and never attended
    to, bool [kv_head, n]; None in a layer without any. logits: [vocabulary] after the last token. position:
    of the next token. used_rng: whether it drew from torch's generator.
    """

    keys: list[Tensor]
    values: list[Tensor]
    hidden: list[Tensor | None]
    logits: Tensor
    position: int
    used_rng: bool

    @property
    def has_masked(self) -> bool:
        return any(hidden is not None for hidden in self.hidden)

    def counts(self) -> Tensor:
        """Return the stored slots, [layer, kv_head] on the CPU; masked slots are included."""
        return torch.tensor([[keys.shape[1]] * keys.shape[0] for keys in self.keys])

    def full_masks(self) -> list[Tensor]:
        """Return masks that keep everything, one per layer."""
        return [torch.ones_like(keys[..., 0], dtype=torch.bool) for keys in self.keys]


@dataclass(frozen=True)
class AsThePress(Verbatim):
    """Stands for every part of a policy that a press replaces: `slots` alone is called, and protects nothing."""

    needs: ClassVar[frozenset[Signal]] = frozenset()
    unused: ClassVar[int] = 0
    bounds: ClassVar[bool] = False

    def slots(self, filled: Tensor, budget: int, *, decoding: bool, prompt: Tensor | None = None) -> Tensor:
        return torch.zeros_like(filled)


@dataclass(frozen=True)
class Pressed(Policy):
    """A press of kvpress, which compresses once, after the context.

    press: its settings (`press_settings.describe_press`). version: of kvpress. by_budget: whether its compression ratio
    is derived from the registered budget; otherwise it is as registered, or the press has none.
    """

    press: Any = None
    version: str = ""
    by_budget: bool = True

    @property
    def promises(self) -> Promises:
        return super().promises._replace(leaves_at_most=False, leaves_exactly=False, is_press=True)

    def prefill(self, network: PreTrainedModel, context: Sequence[int], budget: int, key: int) -> LanePrefill:
        """Return what the press leaves of a context that transformers feeds at once, into a separate cache.

        budget: slots per KV head and layer; key: seed of the random draws, if any. The network is restored
        afterwards. Raises ValueError if the press refuses, and for slots of another shape.
        """
        from transformers import DynamicCache

        press = press_settings.build_press(self.press)
        if self.by_budget:
            press.compression_ratio = compression_ratio(budget, len(context))
        names = {type(entry).__name__ for entry in (self.press, *inner_presses(self.press))}
        cache = DynamicCache()
        token_ids = torch.tensor([list(context)], device=network.device)
        attention = "eager" if names & supported_presses.EAGER else "sdpa"
        with native_attention(network, attention) as layers, seeded_rng(network, key) as used_rng:
            try:
                with press(network):
                    output = network(input_ids=token_ids, past_key_values=cache, logits_to_keep=1)
            except (AssertionError, ValueError, RuntimeError, IndexError) as refusal:
                message = " ".join(str(refusal).split()) or type(refusal).__name__
                raise ValueError(f"{type(self.press).__name__}: {message}") from None
            masked = [getattr(layer, "masked_key_indices", None) for layer in layers]
            keys = [layer.keys[0] for layer in cache.layers]
            values = [layer.values[0] for layer in cache.layers]
            check_shapes(keys, values, network, len(context))
            renumbers = type(self.press).__name__ in supported_presses.RENUMBERING
            return LanePrefill(
                keys,
                values,
                [hidden_mask(layer_keys, entry) for layer_keys, entry in zip(keys, masked, strict=True)],
                output.logits[0, -1],
                cache.get_seq_length() if renumbers else len(context),
                used_rng(),
            )


def build_press_policy(source: str, settings: Mapping[str, Any] | None) -> Pressed:
    """Return the press `source` as an arm's policy. Raises ValueError as `describe_press` does, and without kvpress."""
    settings = settings or {}
    press = press_settings.describe_press(source, settings)
    ratio_settings = [path for path in settings if path.rpartition(".")[2].startswith(press_settings.RATIO_FIELD)]
    is_ratio_free = (
        any(hasattr(described, press_settings.RATIO_FIELD) for described in (press, *inner_presses(press)))
        and not ratio_settings
    )
    part = AsThePress()
    return Pressed(
        scoring=part,  # type: ignore[arg-type]
        selection=part,  # type: ignore[arg-type]
        routing=part,  # type: ignore[arg-type]
        state=part,
        protect=part,
        press=press,
        version=press_settings.kvpress_version(),
        by_budget=is_ratio_free,
    )


def inner_presses(described: Any) -> Iterator[Any]:
    """Yield the presses inside a press, outermost first."""
    while (described := getattr(described, press_settings.INNER_FIELD, None)) is not None:
        yield described


def compression_ratio(budget: int, n: int) -> float:
    """Return the compression ratio at which kvpress keeps `budget` of n slots. It truncates or rounds n * (1
    - ratio) in floats, and a quarter of a slot is beyond the error of both.
    """
    return max(0.0, 1 - (budget + 0.25) / n)


def hidden_mask(keys: Tensor, masked: tuple[Tensor, ...] | None) -> Tensor | None:
    """Return the mask of hidden slots. keys [kv_head, n, d]; masked: indices of batch, head and slot, by kvpress."""
    if masked is None:
        return None
    _, heads, slots = masked
    mask = torch.zeros(keys.shape[:2], dtype=torch.bool, device=keys.device)
    mask[heads.to(keys.device), slots.to(keys.device)] = True
    return mask


def check_shapes(keys: Sequence[Tensor], values: Sequence[Tensor], network: PreTrainedModel, n: int) -> None:
    """Raise ValueError for slots that the cache of this model cannot store."""
    heads = network.config.num_key_value_heads
    for layer, (key, value) in enumerate(zip(keys, values, strict=True)):
        fits = key.shape == value.shape and key.shape[0] == heads and 1 <= key.shape[1] <= n
        if not fits or key.dtype != network.dtype or value.dtype != network.dtype:
            raise ValueError(
                f"leaves keys {list(key.shape)} {key.dtype} and values {list(value.shape)} {value.dtype} in "
                f"layer {layer}, but the cache has {heads} heads of 1 to {n} slots of type {network.dtype}"
            )


@contextmanager
def native_attention(network: PreTrainedModel, attention: str) -> Iterator[list[Any]]:
    """Yield the attention layers of the network, with transformers' own attention function within this block.
    Attributes that a press adds to them are removed afterwards.
    """
    implementation = network.config._attn_implementation
    blocks: Any = network.base_model.layers
    layers = [block.self_attn for block in blocks]
    original_attributes = [set(vars(layer)) | set(layer._modules) for layer in layers]
    network.set_attn_implementation(attention)
    try:
        yield layers
    finally:
        network.set_attn_implementation(implementation)
        for layer, attributes in zip(layers, original_attributes, strict=True):
            for name in (set(vars(layer)) | set(layer._modules)) - attributes:
                delattr(layer, name)


@contextmanager
def seeded_rng(network: PreTrainedModel, key: int) -> Iterator[Any]:
    """Seed torch with `key` within this block and restore its state afterwards; yield whether anything was drawn."""
    on_gpu = network.device.type == "cuda"
    state = torch.cuda.get_rng_state if on_gpu else torch.get_rng_state
    with torch.random.fork_rng([network.device] if on_gpu else []):
        torch.manual_seed(key)
        first = state()
        yield lambda: not torch.equal(first, state())
