"""What the answer of a trace attends to in its thought, and what attention of the thought came back to, and when."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from policies import AttentionRows
from policies.crystal_kv import hits
from policies.signals import AttentionSums, EveryLayer
from protocol.engine import prefill
from protocol.engine.observation import observe_forward
from protocol.instruments.anatomy.run.layer_statistics import StatisticRow
from protocol.instruments.anatomy.slip import SLIP_SIGNALS
from protocol.layers.layer_kinds import evictable
from protocol.models.load import LoadedModel

HIT = 0.9  # of a row's attention: its hits are the fewest slots that cover it (Crystal-KV, section 5.2)


class Returns(NamedTuple):
    """last: the row that last hit each slot, or its own; gap: the most rows between two of its hits. [kv_head, n]"""

    last: Tensor
    gap: Tensor


@dataclass(frozen=True)
class AttentionReturns(EveryLayer):
    """When the rows [start, stop) come back to each slot. A slot arrives at its own row."""

    start: int
    stop: int
    window: ClassVar[None] = None

    def attend(self, rows: AttentionRows, before: Returns | None) -> Returns:
        count, n = rows.attention.shape[-2:]
        scores = rows.attention.reshape(rows.kv_heads, -1, count, n).mean(1)
        new = torch.arange(n, device=scores.device).expand(rows.kv_heads, n).clone()
        last, gap = (new, torch.zeros_like(new)) if before is None else _lengthen(before, new)
        hit = hits(scores, HIT)
        for row in range(count):
            at = rows.start + row
            if self.start <= at < self.stop:
                is_hit = hit[:, row] & (last < at)
                gap = torch.where(is_hit, gap.maximum(at - last), gap)
                last = torch.where(is_hit, at, last)
        return Returns(last, gap)


def _lengthen(before: Returns, new: Tensor) -> Returns:
    known, more = before.last.shape[-1], new.shape[-1] - before.last.shape[-1]
    return Returns(torch.cat([before.last, new[:, known:]], -1), pad(before.gap, (0, more)))


def measure_answer_attention(
    model: LoadedModel, token_ids: Sequence[int], thought: range, chunk: int | None
) -> list[StatisticRow]:
    """Return one row of each of SLIP_SIGNALS over the tokens up to the end of the thought, NaN outside of it.

    token_ids: the whole trace, of which the tokens after the thought are the answer. The attention of a token of the
    answer, mean over these, over layers and query heads; the longest gap between two hits by later tokens of the
    thought, in tokens, and the share of the thought after a token until its last hit, mean over layers and KV heads.
    """
    layers, end = evictable(model.network.config), thought.stop
    sums = AttentionSums(len(token_ids) - end)
    returns = AttentionReturns(thought.start, end)
    with observe_forward(model.network, range(layers)), torch.no_grad():
        fed = prefill.feed(model, token_ids, (sums, returns), chunk=chunk, prompt=thought.start)
    attention = torch.stack([fed.signals[sums][layer].double().mean(0) for layer in range(layers)]).mean(0)
    at = torch.arange(end)
    last, gap = (
        torch.stack([part[layer].double().mean(0) for layer in range(layers)]).mean(0).cpu()[:end]
        for part in zip(*fed.signals[returns], strict=True)
    )
    values = (attention.cpu()[:end] / (len(token_ids) - end), gap, (last - at) / (end - 1 - at))
    outside = at < thought.start
    return [
        StatisticRow(name, None, row.masked_fill(outside, torch.nan))
        for name, row in zip(SLIP_SIGNALS, values, strict=True)
    ]
