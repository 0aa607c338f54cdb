"""EpiCache: a cache for each episode of the text, of which one answers (arXiv:2509.17396)."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from policies.blockwise import Blockwise
from policies.contract import Rows, Scores, Scoring, Signal, View
from policies.crystal.trunks import sentences
from policies.kinds import Kind
from policies.kvzip import largest_of_group
from policies.policy import Policy
from policies.protect import Protect
from policies.routing import Adaptive
from policies.signals import of_all_layers

__all__ = [
    "AsksAbout",
    "Episodes",
    "Episodic",
    "PatchedPrompt",
    "PromptAttention",
    "clusters",
    "epicache",
    "windows",
]

WINDOW = 4
"""Sentences of a window, as the authors have utterances."""
ROUNDS = 100
"""Of k-means, at most."""


class Episodes(NamedTuple):
    """What is asked of each cache, and which of them answers."""

    prompts: tuple[tuple[int, ...], ...]
    """Token ids, one prompt an episode."""
    chosen: int


@runtime_checkable
class AsksAbout(Protocol, metaclass=Kind):
    """A scoring that asks with a prompt of an episode."""

    def about(self, prompt: tuple[int, ...]) -> Scoring: ...


@dataclass(frozen=True)
class Episodic(Blockwise):
    """The context is read in blocks once for each of its episodes, into a cache of its own under the budget;
    the question chooses the cache that answers, and the others are parked.

    Windows of `window` sentences are embedded as the mean of the model's input embeddings and clustered into
    `episodes` groups; an episode's prompt is its `medoids` windows nearest to its centroid, in the order of
    the text. The question is what is fed after the context or, where nothing is, the last window.

    shared: whether the budget is that of all caches together, so that each holds 1 / episodes of it, rounded
        down; else each holds the budget and the lane, with what it parks, `episodes` times as much. Parked
        slots count as state bytes either way. A context that one cache may hold is one cache, and nothing is
        dropped; shared, one cache is a part of the budget.

    Departs from the authors' code: sentences for utterances, since a document has no turns; their embedder
    "llm" (their scripts load another model for it); k-means from the farthest points in place of ten random
    starts; the question is known before the answer, so that no cache is ever changed for another.
    """

    block: int = 2048
    episodes: int = 4
    window: int = WINDOW
    medoids: int = 4
    shared: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.episodes, self.window, self.medoids) < 1:
            raise ValueError(
                "episodes, window and medoids must be 1 or more, not "
                f"{self.episodes}, {self.window} and {self.medoids}"
            )

    def budgets(self, budget: int) -> tuple[int, ...]:
        return (max(1, budget // self.episodes),) if self.shared else (budget,)

    def apart(self, context: int, budget: int) -> bool:
        return True

    def plan(
        self, token_ids: Tensor, embedded: Tensor, question: Tensor | None, sentence_ends: Set[int]
    ) -> Episodes:
        """token_ids [n]; embedded [n, width], their input embeddings; question [t, width], those of what is
        fed after the context.
        """
        spans = windows(token_ids, sentence_ends, self.window)
        points = torch.stack([direction(embedded[span.start : span.stop]) for span in spans])
        asked = points[-1] if question is None else direction(question)
        labels = clusters(points, self.episodes)
        groups = [(labels == label).nonzero()[:, 0] for label in range(int(labels.max()) + 1)]
        centroids = torch.stack([points[group].mean(0) for group in groups])
        prompts = []
        for group, centroid in zip(groups, centroids, strict=True):
            near = (points[group] @ centroid).argsort(stable=True, descending=True)[: self.medoids]
            chosen = [spans[int(place)] for place in group[near].sort().values]
            prompts.append(tuple(int(token_ids[at]) for span in chosen for at in span))
        return Episodes(tuple(prompts), int((centroids @ asked).argmax()))


def windows(token_ids: Tensor, sentence_ends: Set[int], size: int) -> list[range]:
    """Spans of `size` consecutive sentences each, the last one of what is left."""
    parts = sentences(token_ids, sentence_ends)
    return [
        range(parts[at].start, parts[min(at + size, len(parts)) - 1].stop)
        for at in range(0, len(parts), size)
    ]


def direction(embedded: Tensor) -> Tensor:
    """embedded [t, width] -> [width] of unit length, float64 on the host: where the mean of it points."""
    return torch.nn.functional.normalize(embedded.cpu().double().mean(0), dim=0)


def clusters(points: Tensor, count: int) -> Tensor:
    """points [point, width] -> the cluster of each, [point] int64: 0, 1, ..., at most `count` of them.

    k-means (Lloyd) with squared distances. It starts from the point nearest to the mean and then, one after
    the other, from the one farthest from those; equal points make no two clusters. Ties: the lower point and
    the lower cluster.
    """
    starts = [int(distances(points, points.mean(0)[None])[:, 0].argmin())]
    while len(starts) < count:
        apart = distances(points, points[starts]).amin(-1)
        if not apart.max() > 1e-12:
            break
        starts.append(int(apart.argmax()))
    centres = points[starts].clone()
    labels = distances(points, centres).argmin(-1)
    for _ in range(ROUNDS):
        for label in range(len(centres)):
            if (labels == label).any():
                centres[label] = points[labels == label].mean(0)
        before, labels = labels, distances(points, centres).argmin(-1)
        if torch.equal(before, labels):
            break
    named = sorted(set(labels.tolist()))
    return torch.tensor([named.index(label) for label in labels.tolist()])


def distances(points: Tensor, centres: Tensor) -> Tensor:
    """[point, centre], squared; rounded, so that equal ones are equal whatever the order of summation."""
    return (points[:, None] - centres).square().sum(-1).round(decimals=12)


@dataclass(frozen=True)
class PromptAttention:
    """The most attention that each slot receives from any token of a prompt that is fed behind the text:
    [kv_head, n], over the query heads of a group too. The softmax runs over the slots alone.

    prompt: token ids; where there are none, the last window of the text.
    """

    prompt: tuple[int, ...] = ()

    def passages(self, token_ids: Tensor, sentence_ends: frozenset[int]) -> tuple[Tensor, ...]:
        if self.prompt:
            return (torch.tensor(self.prompt, device=token_ids.device),)
        last = windows(token_ids, sentence_ends, WINDOW)[-1]
        return (token_ids[last.start : last.stop],)

    def attend(self, rows: Rows, before: Tensor | None) -> Tensor:
        assert rows.logits is not None
        largest = largest_of_group(rows.logits.softmax(-1), rows.kv_heads)
        return largest if before is None else largest.maximum(before)

    def result(self, state: Tensor) -> Tensor:
        return state


@dataclass(frozen=True)
class PatchedPrompt:
    """What a prompt looks at. The engine gives each cache the prompt of its episode."""

    prompt: tuple[int, ...] = ()

    @property
    def needs(self) -> frozenset[Signal]:
        return frozenset({PromptAttention(self.prompt)})

    def score(self, view: View) -> Scores:
        return Scores(torch.stack(of_all_layers(view, PromptAttention(self.prompt))))

    def about(self, prompt: tuple[int, ...]) -> PatchedPrompt:
        return replace(self, prompt=prompt)


def epicache(*, shared: bool = False) -> Policy:
    """Keep what the windows of the question's episode look at; heads of a layer share its budget by their
    scores, without a floor, and nothing is protected.

    Defaults are those of apple/ml-epicache @ b742661: blocks of 2048, windows of 4, 4 episodes, 4 medoids,
    the level "pair", no budgets by layer (their power 0). shared: see `Episodic`; the authors mean the slots
    of one cache when they say budget, and so does `epicache`. Ours: no fixed instruction stands before the
    windows, since a policy sees no tokenizer; the prompt stands behind the text, where theirs overlaps the
    last block by one position; float32 or better, where theirs is in the model's precision. Without
    `Episodic` there are no episodes, and the end of the text asks.
    """
    return Policy(
        scoring=PatchedPrompt(),
        routing=Adaptive(floor=0),
        cadence=Episodic(shared=shared),
        protect=Protect(sinks=0, recent=0),
    )
