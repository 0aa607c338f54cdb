"""S3: encoding impact, salience mixed with rarity (CrystalCache, section 3.4)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from types import MappingProxyType
from typing import Literal, Protocol, TypeAlias

import torch
from torch import Tensor

TOP_MEMBERS = 3  # Eq. 23, Table 14

Rarity: TypeAlias = Literal["logarithmic", "inverse", "exponential", "document", "none"]


class ImpactEncoding(Protocol):
    """Compute the encoding impact of tokens and of trunks."""

    def token_impact(self, mass: Tensor, token_ids: Tensor, sentences: Sequence[range]) -> Tensor:
        """Return M_i [n] float64 of the last n tokens.

        mass [n] float64, the attention that each received: Eq. 11 before clipping. token_ids [t] and
        sentences of all tokens fed.
        """

    def trunk_impact(self, impact: Tensor, spans: Sequence[range]) -> Tensor:
        """Return the impact [trunk] float64 from the impact [n] of the tokens."""


@dataclass(frozen=True)
class Impact:
    """Eq. 22 and 23, with the rarity of Eq. 21 or another form of it (F5 of the paper).

    rarity "none" removes the term: M_i is the salience (section 3.4, the ablation without Von Restorff).
    """

    rarity: Rarity = "logarithmic"
    lowest: float = 0.1
    highest: float = 20.0

    def __post_init__(self) -> None:
        if not 0 <= self.lowest < self.highest:
            raise ValueError(f"impact needs 0 <= lowest < highest, not {self.lowest} and {self.highest}")
        if self.rarity not in (*RARITY, "none"):
            raise ValueError(f"rarity must be one of {', '.join(RARITY)} or none, not {self.rarity!r}")

    def salience(self, mass: Tensor) -> Tensor:
        """S_i, Eq. 11."""
        return mass.clamp(self.lowest, self.highest)

    def token_impact(self, mass: Tensor, token_ids: Tensor, sentences: Sequence[range]) -> Tensor:
        salience = self.salience(mass)
        if self.rarity == "none":
            return salience
        rarity = RARITY[self.rarity](token_ids, sentences)[-len(mass) :]
        mixed = 0.5 * (salience / self.highest) + 0.5 * rarity
        return (self.highest * mixed).clamp(self.lowest, self.highest)

    def trunk_impact(self, impact: Tensor, spans: Sequence[range]) -> Tensor:
        return top_members(impact, spans)


@dataclass(frozen=True)
class Uniform:
    """M_i = 1 for every token: the ablation of salience and rarity together (section 6.1)."""

    def token_impact(self, mass: Tensor, token_ids: Tensor, sentences: Sequence[range]) -> Tensor:
        return torch.ones_like(mass)

    def trunk_impact(self, impact: Tensor, spans: Sequence[range]) -> Tensor:
        return top_members(impact, spans)


@dataclass(frozen=True)
class Scaled:
    """The blog's impact: salience and impact of trunks are each scaled to [0, 1] (its sections 3 and 7).

    The blog says "normalized" without details. Here: minimum to 0, maximum to 1, over the tokens of the
    prompt and over its trunks; for decoded tokens, over those that an eviction step adds.

    Departs from the blog where it departs from itself: its section 6 halves D in about 270 steps at D = 0.9 and an
    impact of 8.0, which no scale of [0, 1] has. At 1, the most that there is here, Eq. 36 halves it in 19 steps, so
    that all trunks decay about as fast.
    """

    def token_impact(self, mass: Tensor, token_ids: Tensor, sentences: Sequence[range]) -> Tensor:
        return 0.5 * min_max_scale(mass) + 0.5 * logarithmic_count(token_ids, sentences)[-len(mass) :]

    def trunk_impact(self, impact: Tensor, spans: Sequence[range]) -> Tensor:
        return min_max_scale(top_members(impact, spans))


def top_members(impact: Tensor, spans: Sequence[range]) -> Tensor:
    """Eq. 23: [trunk], mean of the three highest members (all members if there are fewer)."""
    values = impact.tolist()
    means = []
    for span in spans:
        top = nlargest(TOP_MEMBERS, values[span.start : span.stop])
        means.append(sum(top) / len(top))
    return impact.new_tensor(means)


def min_max_scale(values: Tensor) -> Tensor:
    """Scale the minimum to 0 and the maximum to 1; all 0 if the values are equal."""
    span = values.max() - values.min()
    return (values - values.min()) / span if span > 0 else torch.zeros_like(values)


def logarithmic_count(token_ids: Tensor, sentences: Sequence[range]) -> Tensor:
    """Eq. 20-21. [t] -> [t] float64 in (0, 0.591]: higher for rarer tokens."""
    return 1 / (1 + torch.log1p(token_counts(token_ids)))


def inverse_count(token_ids: Tensor, sentences: Sequence[range]) -> Tensor:
    """1 / (1 + c), in (0, 0.5]."""
    return 1 / (1 + token_counts(token_ids))


def exponential_count(token_ids: Tensor, sentences: Sequence[range]) -> Tensor:
    """exp(-c), in (0, 0.368]."""
    return torch.exp(-token_counts(token_ids))


def document_frequency(token_ids: Tensor, sentences: Sequence[range]) -> Tensor:
    """Inverse document frequency, in [0, 1); the m sentences are the documents, df of them hold the token.

    log((1 + m) / (1 + df)) / log(1 + m)
    """
    ids, m = token_ids.tolist(), len(sentences)
    df = Counter(token for span in sentences for token in set(ids[span.start : span.stop]))
    rarity = [math.log((1 + m) / (1 + df[token])) / math.log(1 + m) for token in ids]
    return torch.tensor(rarity, dtype=torch.float64, device=token_ids.device)


def token_counts(token_ids: Tensor) -> Tensor:
    """Return the number of occurrences of each token, [t] float64, Eq. 20."""
    _, index, counts = torch.unique(token_ids, return_inverse=True, return_counts=True)
    per_token: Tensor = counts[index].double()
    return per_token


RARITY: Mapping[str, Callable[[Tensor, Sequence[range]], Tensor]] = MappingProxyType(
    {
        "logarithmic": logarithmic_count,
        "inverse": inverse_count,
        "exponential": exponential_count,
        "document": document_frequency,
    }
)
