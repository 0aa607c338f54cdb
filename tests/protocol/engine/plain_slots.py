"""What lanes with a state must equal: lists of slots, one token at a time, every sum a loop."""

from __future__ import annotations

from cmath import rect
from dataclasses import dataclass, field
from math import log
from typing import Any

import numpy as np
import torch
from plain_forward import plain_forward
from torch import Tensor
from transformers import AttentionInterface


@dataclass
class Slot:
    """One slot of one head. value: as it is stored. received: attention so far, by query head."""

    position: int
    key: Tensor
    value: Tensor
    weight: float = 1.0
    received: dict[int, float] = field(default_factory=dict)


@dataclass
class PlainLane:
    """A lane whose slots are lists, by (layer, head). coding: a codec, or None. packed: what remains of a key and of a
    value once they are packed.
    """

    network: Any
    coding: Any = None
    packed: Any = None
    mass: bool = False
    held: dict[tuple[int, int], list[Slot]] = field(default_factory=dict)
    queries: list[Tensor] = field(default_factory=list)
    seen: int = 0

    def settle(self) -> None:
        """Store what the tokens fed have filled up."""

    @property
    def frequencies(self) -> list[float]:
        return self.network.model.rotary_emb.inv_freq.double().tolist()

    @property
    def group(self) -> int:
        config = self.network.config
        return config.num_attention_heads // config.num_key_value_heads

    def prefill(self, context: tuple[int, ...]) -> Tensor:
        """Logits after the last token; attention is causal, over keys and values as computed."""
        plain = plain_forward(self.network, context)
        layers, heads, total = plain.keys.shape[:3]
        for layer in range(layers):
            for head in range(heads):
                own = range(head * self.group, (head + 1) * self.group)
                self.held[layer, head] = [
                    Slot(
                        position,
                        plain.keys[layer, head, position],
                        plain.values[layer, head, position],
                        received={q: float(plain.weights[layer, q, :, position].sum()) for q in own},
                    )
                    for position in range(total)
                ]
        self.queries = [plain.queries[:, :, row] for row in range(total)]
        self.seen = total
        return plain.logits[-1]

    def evict(self, kept: Tensor, merging: Any = None) -> None:
        """kept: bool [layer, kv_head, n]."""
        for (layer, head), slots in self.held.items():
            left = []
            for number, slot in enumerate(slots):
                if not kept[layer, head, number]:
                    continue
                members = [slots[number]]
                shares = [1.0]
                if merging is not None:
                    into, parts = (
                        tensor.expand(kept.shape)[layer, head].tolist() for tensor in (merging.targets, merging.shares)
                    )
                    whose = [i for i, to in enumerate(into) if to == number]
                    members, shares = [slots[i] for i in whose], [parts[i] for i in whose]
                left.append(self.merged(slot.position, members, shares))
            self.held[layer, head] = left

    def merged(self, position: int, members: list[Slot], shares: list[float]) -> Slot:
        key, value = torch.zeros_like(members[0].key), torch.zeros_like(members[0].value)
        received: dict[int, float] = {}
        for slot, share in zip(members, shares, strict=True):
            steps = position - slot.position
            key += share * (self.turned(slot.key, steps) if steps else slot.key)
            value += share * slot.value
            for query_head, sum_ in slot.received.items():
                received[query_head] = received.get(query_head, 0.0) + sum_
        return Slot(position, key, value, sum(slot.weight for slot in members), received)

    def turned(self, key: Tensor, steps: int) -> Tensor:
        """Each pair (i, i + d/2) as a complex number, times e^(i steps frequency)."""
        pairs, half = key.tolist(), len(key) // 2
        for i, frequency in enumerate(self.frequencies):
            turn = complex(pairs[i], pairs[i + half]) * rect(1.0, steps * frequency)
            pairs[i], pairs[i + half] = turn.real, turn.imag
        return torch.tensor(pairs, dtype=key.dtype)

    def code(self) -> None:
        """From here on slots hold coded values."""
        for (layer, head), slots in self.held.items():
            for slot in slots:
                slot.key, slot.value = self.written(layer, head, slot.key, slot.value)

    def written(self, layer: int, head: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        if self.packed is not None:
            return self.packed[0](key), self.packed[1](value)
        return key, self.coded(layer, head, value)

    def coded(self, layer: int, head: int, value: Tensor) -> Tensor:
        if self.coding is None:
            return value
        return (value - self.coding.mean[layer, head]) @ self.coding.basis[layer, head]

    def read(self, layer: int, head: int, stored: Tensor) -> Tensor:
        if self.coding is None:
            return stored
        return self.coding.mean[layer, head] + self.coding.basis[layer, head] @ stored

    def attention(self, query: Tensor, slots: list[Slot], scale: float) -> Tensor:
        logits = [float(logit) for logit in torch.stack([slot.key for slot in slots]) @ query]
        if self.mass:
            logits = [logit + log(slot.weight) / scale for logit, slot in zip(logits, slots, strict=True)]
        return torch.tensor([scale * logit for logit in logits], dtype=torch.float64).softmax(0)

    def feed(self, token: int) -> Tensor:
        """Logits after one more token, which sees all slots and itself."""
        AttentionInterface.register("plain slots", attention)
        config = self.network.config
        before = config._attn_implementation
        self.network.set_attn_implementation("plain slots")
        self.queries.append(torch.zeros(config.num_hidden_layers, config.num_attention_heads, 0))
        found: list[Tensor] = []
        with torch.no_grad():
            logits = self.network(
                torch.tensor([[token]]),
                position_ids=torch.tensor([[self.seen]]),
                use_cache=False,
                lane=self,
                found=found,
            ).logits[0, -1]
        self.network.set_attn_implementation(before)
        self.queries[-1] = torch.stack(found)
        self.seen += 1
        return logits

    def of_window(self, window: int, scale: float) -> dict[tuple[int, int, int], float]:
        """Attention of the last `window` queries over the slots of now, by (layer, query head, number)."""
        received: dict[tuple[int, int, int], float] = {}
        for (layer, head), slots in self.held.items():
            for query_head in range(head * self.group, (head + 1) * self.group):
                for row in range(self.seen - window, self.seen):
                    query = self.queries[row][layer, query_head]
                    left = [number for number, slot in enumerate(slots) if slot.position <= row]
                    shares = self.attention(query, [slots[number] for number in left], scale)
                    for number, share in zip(left, shares.tolist(), strict=True):
                        place = layer, query_head, number
                        received[place] = received.get(place, 0.0) + share
        return received


@dataclass
class KiviLane(PlainLane):
    """KIVI (arXiv:2402.02750, algorithm 1): of n slots, keys before n - n mod R are packed, values before n - R.

    Packed once in R slots and in their order; an eviction leaves numbers as they are read, to be packed anew.
    """

    bits: int = 2
    recent: int = 32
    packed_keys: dict[tuple[int, int], int] = field(default_factory=dict)

    def written(self, layer: int, head: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        return key.half().double(), value.half().double()

    def evict(self, kept: Tensor, merging: Any = None) -> None:
        super().evict(kept, merging)
        self.packed_keys = {}

    def settle(self) -> None:
        for place, slots in self.held.items():
            first, last = self.packed_keys.get(place, 0), len(slots) - len(slots) % self.recent
            for start in range(first, last, 32):
                group = slots[start : start + 32]
                for channel in range(len(group[0].key)):
                    column = self.quantised(np.array([slot.key[channel].item() for slot in group], np.float32))
                    for slot, number in zip(group, column, strict=True):
                        slot.key[channel] = float(number)
            self.packed_keys[place] = last
            for slot in slots[last:]:
                slot.key = slot.key.half().double()
            for slot in slots[max(0, len(slots) - self.recent) :]:
                slot.value = slot.value.half().double()
            for slot in slots[: max(0, len(slots) - self.recent)]:
                if not hasattr(slot, "is_packed"):
                    parts = [self.quantised(part.float().numpy()) for part in slot.value.split(32)]
                    slot.value = torch.from_numpy(np.concatenate(parts)).double()
                    slot.is_packed = True  # type: ignore[attr-defined]

    def quantised(self, numbers: Any) -> Any:
        """The numbers of a group as they are read: float32, by the formula of section 3.1."""
        most = 2**self.bits - 1
        least, step = np.float16(numbers.min()), np.float16((numbers.max() - numbers.min()) / np.float32(most))
        least, step = np.float32(least), np.float32(step)
        codes = np.rint((numbers - least) / step) if step else np.zeros_like(numbers)
        return codes.clip(0, most) * step + least


@dataclass
class QuestLane(PlainLane):
    """Quest by its authors' formula (evaluation/quest_attention.py): each key times the signs of the query, the most of
    a page in each channel, times the query's sizes. reads: slots that some query of a head read, and bounds.
    """

    tokens: int = 8
    page: int = 4
    dense_layers: int = 1
    question_end: int = 0
    chosen: dict[tuple[int, int], set[int]] = field(default_factory=dict)
    reads: int = 0

    def feed(self, token: int) -> Tensor:
        self.chosen = {}
        logits = super().feed(token)
        if self.seen > self.question_end:
            for place, slots in self.held.items():
                read = self.chosen.get(place)
                self.reads += len(slots) if read is None else len(read) + -(-len(slots) // self.page)
        return logits

    def attention(self, query: Tensor, slots: list[Slot], scale: float) -> Tensor:
        place = next((place for place, held in self.held.items() if held is slots), None)  # none: a look at an event
        if place is None or place[0] < self.dense_layers or self.seen < self.question_end:
            return super().attention(query, slots, scale)
        sign = torch.where(query > 0, 1.0, -1.0).to(query.dtype)
        bounds = {}
        for start in range(0, len(slots), self.page):
            most = torch.stack([slot.key * sign for slot in slots[start : start + self.page]]).amax(0)
            bounds[start] = float(most @ (query * sign))
        best = sorted(bounds, key=lambda start: -bounds[start])[: max(3, self.tokens // self.page)]
        read = [number for number in range(len(slots)) if number // self.page * self.page in best]
        self.chosen.setdefault(place, set()).update(read)
        shares = torch.zeros(len(slots), dtype=torch.float64)
        shares[read] = super().attention(query, [slots[number] for number in read], scale)
        return shares


def attention(module, query, key, value, attention_mask, *, scaling, lane, found, **rest):
    layer, output = module.layer_idx, torch.zeros_like(query[0, :, 0])
    found.append(query[0, :, 0])
    for head in range(key.shape[1]):
        slots = lane.held[layer, head]
        slots.append(Slot(lane.seen, *lane.written(layer, head, key[0, head, 0], value[0, head, 0])))
        values = torch.stack([lane.read(layer, head, slot.value) for slot in slots])
        for query_head in range(head * lane.group, (head + 1) * lane.group):
            shares = lane.attention(query[0, query_head, 0], slots, scaling)
            output[query_head] = shares @ values
            for slot, share in zip(slots, shares.tolist(), strict=True):
                slot.received[query_head] = slot.received.get(query_head, 0.0) + share
    return output[None, None], None
