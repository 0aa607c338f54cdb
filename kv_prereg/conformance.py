"""What holds of a cache that a method has compressed: tests to inherit, for a method that lives elsewhere.

    import torch
    from transformers import DynamicCache

    from kv_prereg.conformance import CacheLaws

    class TestMine(CacheLaws):
        reference = "snapkv"  # optional: a policy of kv-prereg that has to keep the same slots

        def compress(self, network, context, ratio):
            cache = DynamicCache()
            with torch.no_grad(), MyPress(ratio)(network):
                network(context, past_key_values=cache)
            return cache

Run it with pytest, or print `TestMine().broken()`. The laws hold of a method that evicts whole slots of a context which
is fed at once; one that merges, rotates or masks breaks some of them by design. Needs torch and transformers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple

import torch
import transformers
from torch import Tensor

import policies
from policies import Policy
from protocol import engine


class HeadSlots(NamedTuple):
    """What one KV head of one layer holds, oldest slot first."""

    keys: Tensor  # [slot, dim]
    values: Tensor  # [slot, dim]


class CacheLaws:
    """Override `compress`, and whatever else is different for the method."""

    ratios: Sequence[float] = (0.25, 0.5, 0.75)
    tolerance = 1e-4  # within which a key or value is the one of the full cache: kernels of attention differ
    reference: str | Policy | None = None

    def compress(self, network: Any, context: Tensor, ratio: float) -> Any:
        """Feed context [1, token] to the network and return its cache, without `ratio` of its slots."""
        raise NotImplementedError

    def network(self) -> Any:
        """Return a causal language model of transformers: by default a Llama of two layers with random weights."""
        return make_network()

    def context(self) -> Tensor:
        """Return the token ids [1, token]."""
        return torch.randint(97, (1, 200), generator=torch.Generator().manual_seed(5))

    def budget(self, tokens: int, ratio: float) -> int:
        """Return how many slots each KV head keeps of so many tokens."""
        return int(tokens * (1 - ratio))

    def slots(self, cache: Any) -> list[HeadSlots]:
        """Return what each KV head holds, layer by layer: of a cache of transformers."""
        pairs = [(layer.keys, layer.values) for layer in cache.layers]
        return [HeadSlots(*head) for keys, values in pairs for head in zip(keys[0], values[0], strict=True)]

    def allocated_bytes(self, cache: Any) -> int:
        """Return the bytes that its keys and values keep allocated: of a view the whole that it looks at."""
        tensors = [tensor for layer in cache.layers for tensor in (layer.keys, layer.values)]
        storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage() for tensor in tensors}
        return sum(storage.nbytes() for storage in storages.values())

    def broken(self) -> dict[str, str]:
        """Return the laws that it breaks, by the names of their tests, and how."""
        found = {}
        for law in (name for name in dir(self) if name.startswith("test_")):
            try:
                getattr(self, law)()
            except AssertionError as wrong:
                found[law] = str(wrong)
        return found

    def test_without_eviction_it_is_the_full_cache(self) -> None:
        network, context = self.network(), self.context()
        full, cache = feed(network, context), self.compress(network, context, 0)
        tokens = context.shape[1]
        for place, slots in enumerate(self.slots(cache)):
            assert len(slots.keys) == tokens, (
                f"head {place}: {len(slots.keys)} slots of {tokens} at ratio 0; a press must keep all of them"
            )
        assert self.kept(full, cache) == [[*range(tokens)]] * len(self.slots(full)), "slots are in another order"
        answers = [continue_greedily(network, context, state) for state in (full, cache)]
        assert answers[0] == answers[1], (
            f"the full cache answers {answers[0]}, but at ratio 0 the answer is {answers[1]}"
        )

    def test_kept_slots_are_slots_of_the_full_cache_and_as_many_as_the_ratio_leaves(self) -> None:
        network, context = self.network(), self.context()
        full = feed(network, context)
        for ratio in self.ratios:
            cache, expected = self.compress(network, context, ratio), self.budget(context.shape[1], ratio)
            for place, kept in enumerate(self.kept(full, cache)):
                assert len(kept) == expected, (
                    f"head {place}, ratio {ratio}: kept {len(kept)} slots instead of {expected}"
                )
                assert len({*kept}) == len(kept), f"head {place}, ratio {ratio}: one slot is kept twice"
            alone = hold(self.slots(cache), len(full.layers))
            said, of_these = (say(network, context[:, -1:], context.shape[1], state) for state in (cache, alone))
            same = torch.allclose(said, of_these, rtol=0.01, atol=0.01)
            assert same, f"ratio {ratio}: the output does not follow from the kept slots alone"

    def test_memory_falls_with_the_slots(self) -> None:
        network, context = self.network(), self.context()
        full, tokens = self.allocated_bytes(feed(network, context)), context.shape[1]
        for ratio in self.ratios:
            held, most = self.allocated_bytes(self.compress(network, context, ratio)), self.budget(tokens, ratio)
            assert held * tokens <= full * most, (
                f"ratio {ratio}: uses {held} bytes of {full}, for {most} of {tokens} slots"
            )

    def test_kept_slots_are_those_of_the_reference(self) -> None:
        network, context = self.network(), self.context()
        for ratio in self.ratios if self.reference is not None else ():
            kept = self.kept(feed(network, context), self.compress(network, context, ratio))
            expected = kept_by_policy(network, self.reference, context, self.budget(context.shape[1], ratio))
            for place, pair in enumerate(zip(kept, expected, strict=True)):
                ours, theirs = ({*slots} for slots in pair)
                other = f"only it keeps {sorted(ours - theirs)}, only the reference keeps {sorted(theirs - ours)}"
                assert ours == theirs, f"head {place}, ratio {ratio}: {other}"

    def test_the_network_is_left_as_it_was(self) -> None:
        network, context = self.network(), self.context()
        before, said = feed(network, context), say(network, context, 0, None)
        hooks = count_hooks(network)
        for _ in range(2):
            self.compress(network, context, self.ratios[-1])
        after = count_hooks(network)
        assert after == hooks, f"{after - hooks} hooks remain after the press"
        for place, pair in enumerate(zip(self.slots(before), self.slots(feed(network, context)), strict=True)):
            same = all(torch.equal(*parts) for parts in zip(*pair, strict=True))
            assert same, f"head {place}: the full cache changed after the press"
        assert torch.equal(said, say(network, context, 0, None)), "the answer of the full cache changed after the press"

    def test_the_same_context_is_compressed_alike(self) -> None:
        network, context = self.network(), self.context()
        first, again = (self.slots(self.compress(network, context, self.ratios[0])) for _ in range(2))
        for place, (one, other) in enumerate(zip(first, again, strict=True)):
            assert torch.equal(one.keys, other.keys), (
                f"head {place}: keeps other slots the second time; seed its random draws"
            )

    def kept(self, full: Any, cache: Any) -> list[list[int]]:
        """Return by head the slots of the full cache that it kept: each has to be one of these, key and value."""
        whole, held = self.slots(full), self.slots(cache)
        assert len(held) == len(whole), f"{len(held)} heads instead of {len(whole)}"
        return [
            locate(*pair, self.tolerance, f"head {place}") for place, pair in enumerate(zip(whole, held, strict=True))
        ]


def locate(whole: HeadSlots, slots: HeadSlots, tolerance: float, where: str) -> list[int]:
    """Return the slots of `whole` with the keys and values of `slots`. Raises AssertionError for any that is none."""
    distance = torch.cdist(slots.keys.float(), whole.keys.float(), p=torch.inf)
    nearest = distance.argmin(-1)
    apart = torch.maximum(distance.amin(-1), (slots.values - whole.values[nearest]).float().abs().amax(-1))
    assert bool((apart <= tolerance).all()), f"{where}: slot {int(apart.argmax())} is not a slot of the full cache"
    return [int(slot) for slot in nearest]


def make_network(layers: int = 2, seed: int = 0, dtype: torch.dtype = torch.float32) -> Any:
    """Return a Llama with 4 query heads and 2 KV heads of 16 dimensions, 97 tokens, and weights from the seed."""
    shape = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2}
    no_marks = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
    config = transformers.LlamaConfig(
        vocab_size=97, num_hidden_layers=layers, head_dim=16, initializer_range=0.25, **shape, **no_marks
    )
    torch.manual_seed(seed)
    return transformers.LlamaForCausalLM(config).to(dtype).eval().requires_grad_(False)


def feed(network: Any, context: Tensor) -> Any:
    """Return the full cache of a context."""
    cache = transformers.DynamicCache()
    with torch.no_grad():
        network(context, past_key_values=cache)
    return cache


def count_hooks(network: Any) -> int:
    """Return how many hooks the forwards of the network and of its parts have."""
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in network.modules())


def continue_greedily(network: Any, context: Tensor, cache: Any, tokens: int = 8) -> list[int]:
    """Return the likeliest tokens after the last one of the context, which is fed once more. The cache grows."""
    said, answer = context[:, -1:], list[int]()
    for step in range(tokens):
        said = say(network, said, context.shape[1] + step, cache)[:, -1:].argmax(-1)
        answer.append(int(said))
    return answer


def say(network: Any, tokens: Tensor, place: int, cache: Any) -> Tensor:
    """Return the logits [1, token, word] after tokens [1, token] from a place on. The cache, if there is one, grows."""
    at = torch.arange(place, place + tokens.shape[1], device=tokens.device)[None]
    with torch.no_grad():
        logits: Tensor = network(tokens, past_key_values=cache, position_ids=at, use_cache=cache is not None).logits
    return logits.float()


def hold(slots: Sequence[HeadSlots], layers: int) -> Any:
    """Return a plain cache of these slots, heads of equal numbers layer by layer."""
    cache, heads = transformers.DynamicCache(), len(slots) // layers
    for layer in range(layers):
        members = slots[layer * heads : (layer + 1) * heads]
        cache.update(*(torch.stack(parts)[None] for parts in zip(*members, strict=True)), layer)
    return cache


def kept_by_policy(network: Any, policy: str | Policy | None, context: Tensor, budget: int) -> list[list[int]]:
    """Return by head the slots that a policy of kv-prereg, or its name, keeps of the context."""
    chosen = policies.get(policy) if isinstance(policy, str) else policy
    assert chosen is not None
    watched = _Watched(*(getattr(chosen, part.name) for part in fields(Policy)))
    model: Any = SimpleNamespace(network=network, name="reference", stop_ids=frozenset(), sentence_ends=frozenset())
    model.statistics = MappingProxyType({})
    prompt = engine.Prompt(tuple(context[0].tolist()), ())
    request = engine.Request("context", prompt, (engine.Lane("reference", watched, budget, 0),))
    (answers,) = engine.run(model, [request], max_new_tokens=1).answers
    assert isinstance(answers.outcomes[0], engine.Outcome), answers
    positions, counts = watched.left[-1]
    return [part.tolist() for part in torch.split(positions, counts.flatten().tolist())]


@dataclass(frozen=True)
class _Watched(Policy):
    """A policy that notes what its events left: the positions of all heads after each other, and how many of each."""

    left: list[tuple[Tensor, Tensor]] = field(default_factory=list, compare=False)

    def evict(self, view: Any, budget: int) -> Any:
        event = super().evict(view, budget)
        positions = view.positions.expand(event.retained.shape)[event.retained]
        self.left.append((positions, event.retained.sum(-1)))
        return event
