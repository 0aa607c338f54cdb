"""AhaKV: recent attention, sharpened to the budget, times the norm of the values.

arXiv:2506.03762.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import avg_pool1d, pad

from policies.contract import AttentionRows, Scores, Signal, View
from policies.policy import Policy
from policies.protect import Protect
from policies.routing import PerHead
from policies.signals import EveryLayer, group_mean, read_signal, upcast
from policies.snapkv import refuse_window
from protocol.formats.policy_facts import PolicyFacts

FACTS = {
    "ahakv": PolicyFacts(
        "attention",
        "recent attention, sharpened to the budget, times the size of values",
        "arXiv:2506.03762",
        "Summed attention favours early tokens; sharpened recent attention times value norms does not.",
        parent="snapkv",
        component="scoring",
    )
}


def softmax_gain(token_counts: Tensor, budget: int) -> Tensor:
    """Return the factor for scaled logits of rows with `token_counts` [row] tokens: sqrt(2 log(i / k)).

    The entropy of a softmax over i logits of normally distributed queries and keys of d entries, times
    lambda, is log i - lambda^2 d / 2 on average. It equals log k, the entropy of a uniform distribution over
    the budget, for lambda = sqrt(2 log(i / k) / d); the logits are already divided by sqrt(d). The factor is
    0 (uniform attention) if the row has no more tokens than the budget (ours; the formula is undefined).
    """
    return (2 * (token_counts.double() / budget).log().clamp(min=0)).sqrt()


def recent_attention(logits: Tensor, token_counts: Tensor, budget: int) -> Tensor:
    """Return S: logits [q_head, row, slot], -inf where masked -> [q_head, slot], summed over the rows.

    token_counts [row]: the number of tokens up to each row, evicted ones included.
    """
    masked = logits == -torch.inf
    sharpened = (logits * softmax_gain(token_counts, budget).to(logits.dtype)[:, None]).masked_fill(masked, -torch.inf)
    return sharpened.softmax(-1).masked_fill(masked.all(-1, keepdim=True), 0).sum(1)


def value_prior(values: Tensor, filled: Tensor, kernel: int) -> Tensor:
    """Return gamma: values [kv_head, n, d], filled [kv_head, n] -> [kv_head, n] between 0 and 1.

    Squared Euclidean norms, averaged over the filled slots among `kernel` neighbours, divided by the largest
    of the head.
    """
    present = filled.to(upcast(values).dtype)
    squares = upcast(values).square().sum(-1).masked_fill(~filled, 0)
    sums = avg_pool1d(torch.stack([squares, present]), kernel, stride=1, padding=kernel // 2)
    means = (sums[0] / sums[1]).masked_fill(~filled, 0)
    largest = means.amax(-1, keepdim=True)
    return means / torch.where(largest > 0, largest, 1)


@dataclass(frozen=True)
class RecentLogits(EveryLayer):
    """Logits of the last `window` queries (fewer if the text is shorter): [q_head, row, n] of each layer.

    They are stored unscaled, because the budget determines the sharpening: 4 * window * q_heads * n bytes
    per layer, during an eviction step.
    """

    window: int
    raw: ClassVar[bool] = True

    def attend(self, rows: AttentionRows, before: Tensor | None) -> Tensor:
        assert rows.logits is not None
        logits = rows.logits[..., max(0, rows.total - self.window - rows.start) :, :].clone()
        if before is None:
            return logits
        padded = pad(before, (0, logits.shape[-1] - before.shape[-1]), value=-torch.inf)
        return torch.cat([padded, logits], -2)


@dataclass(frozen=True)
class ValuePrior:
    """`value_prior` of the stored values."""

    kernel: int

    def summarise(self, layer: int, keys: Tensor, values: Tensor, filled: Tensor) -> Tensor:
        return value_prior(values, filled, self.kernel)


@dataclass(frozen=True)
class Holistic:
    """The score gamma * S, where S is the mean over the query heads of a group."""

    window: int = 32
    kernel: int = 5

    def __post_init__(self) -> None:
        refuse_window(self.window, self.kernel)

    @property
    def needs(self) -> frozenset[Signal]:
        return frozenset({RecentLogits(self.window), ValuePrior(self.kernel)})

    def score(self, view: View) -> Scores:
        if view.budget is None:
            raise ValueError(
                "view.budget must be set to the slots that the eviction step may leave, because AhaKV uses it "
                "in its scores"
            )
        scores = []
        logits = read_signal(view, RecentLogits(self.window))
        priors = read_signal(view, ValuePrior(self.kernel))
        for layer_logits, prior in zip(logits, priors, strict=True):
            token_count = len(view.token_ids)
            token_counts = torch.arange(
                token_count - layer_logits.shape[1] + 1, token_count + 1, device=layer_logits.device
            )
            received = group_mean(recent_attention(layer_logits, token_counts, view.budget), view.kv_heads)
            scores.append(prior * received)
        return Scores(torch.stack(scores))


def ahakv(window: int = 32, kernel: int = 5) -> Policy:
    """Keep the last `window` slots and, of the others, the largest prior times recent attention.

    No code is public, and only the abstract of the paper was available. The formulas are those of two published notes
    on it, which agree: attention summed over the last r rows instead of all (`Recent Accumulation`, r = 32), logits
    times lambda = sqrt(2 log(i / k) / d) for i tokens and a budget of k (`Step Gain Softmax`), and the pooled squared
    norm of the values, divided by its maximum (`value prior`; one of the notes has no pooling). Ours: lambda replaces
    1 / sqrt(d); i counts the tokens up to the query, evicted ones included; attention is uniform where i is at most k;
    the kernel is 5, with ends averaged over the slots that exist; scores are averaged over a group; each KV head of a
    layer selects its own slots; the last r are kept.

    The authors score after the prefill and at every token. Here the registered interval sets the eviction
    steps, and the sum runs over the last r queries, which are carried: an interval changes when tokens are
    evicted, not by which score.
    """
    return Policy(scoring=Holistic(window, kernel), routing=PerHead(), protect=Protect(sinks=0, recent=window))
