"""EpiCache: one cache for each episode of the text; the best one answers (arXiv:2509.17396)."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from policies.blockwise import Blockwise
from policies.cached_protocol import CachedProtocol
from policies.contract import AttentionRows, Scores, Scoring, Signal, View
from policies.crystal.trunks import split_sentences
from policies.kvzip import group_max
from policies.policy import Policy
from policies.protect import Protect
from policies.routing import Adaptive
from policies.signals import read_signal
from protocol.formats.policy_facts import PolicyFacts

FACTS = {
    "epicache": PolicyFacts(
        "attention",
        "what the question's episode attends to, with one cache for each of four episodes",
        "arXiv:2509.17396",
        "A long conversation consists of episodes, and each needs a cache of its own.",
    ),
    "epicache-shared-budget": PolicyFacts(
        "attention",
        "as epicache, but the four caches share one budget",
        "arXiv:2509.17396",
        "Splitting into episodes pays off even if all their caches share one budget.",
    ),
}

WINDOW = 4
"""Sentences per window; the authors use utterances."""
ROUNDS = 100
"""Maximum number of k-means iterations."""


class Episodes(NamedTuple):
    """The prompt of each cache, and the index of the cache that answers."""

    prompts: tuple[tuple[int, ...], ...]
    """Token ids, one prompt per episode."""
    chosen: int


@runtime_checkable
class EpisodeScoring(Protocol, metaclass=CachedProtocol):
    """A scoring that can use the prompt of an episode."""

    def with_prompt(self, prompt: tuple[int, ...]) -> Scoring: ...


@dataclass(frozen=True)
class Episodic(Blockwise):
    """Read the context in blocks once for each of its episodes, into a separate cache under the budget; the
    question selects the cache that answers, and the others are parked.

    Windows of `window` sentences are embedded as the mean of the model's input embeddings and clustered into
    `episodes` groups; an episode's prompt consists of the `medoids` windows nearest to its centroid, in the
    order of the text. The question is the text after the context or, if there is none, the last window.

    shared: whether all caches share the budget, so that each holds 1 / episodes of it, rounded down;
        otherwise each holds the full budget, and the lane with its parked caches `episodes` times as much.
        Parked slots count as state bytes either way. A context that fits into one cache is read into one
        cache, and nothing is dropped; if shared, the size of one cache is its part of the budget.

    Departs from the authors' code: sentences instead of utterances, since a document has no turns; their
    embedder "llm" (their scripts load another model for it); k-means starts from the farthest points instead
    of ten random starts; the question is known before the answer, so the cache never changes while answering.
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
                f"episodes, window and medoids must be 1 or more, not {self.episodes}, {self.window} and {self.medoids}"
            )

    @property
    def parked_caches(self) -> int:
        return self.episodes - 1

    def budgets(self, budget: int) -> tuple[int, ...]:
        return (max(1, budget // self.episodes),) if self.shared else (budget,)

    def needs_own_prefill(self, context: int, budget: int) -> bool:
        return True

    def plan_episodes(
        self, token_ids: Tensor, embedded: Tensor, question: Tensor | None, sentence_ends: Set[int]
    ) -> Episodes:
        """Cluster the context into episodes and select the one nearest to the question.

        token_ids [n]; embedded [n, width], their input embeddings; question [t, width], the embeddings of the
        text after the context.
        """
        spans = split_windows(token_ids, sentence_ends, self.window)
        points = torch.stack([mean_direction(embedded[span.start : span.stop]) for span in spans])
        question_direction = points[-1] if question is None else mean_direction(question)
        labels = cluster_points(points, self.episodes)
        groups = [(labels == label).nonzero()[:, 0] for label in range(int(labels.max()) + 1)]
        centroids = torch.stack([points[group].mean(0) for group in groups])
        prompts = []
        for group, centroid in zip(groups, centroids, strict=True):
            near = (points[group] @ centroid).argsort(stable=True, descending=True)[: self.medoids]
            chosen = [spans[int(index)] for index in group[near].sort().values]
            prompts.append(tuple(int(token_ids[position]) for span in chosen for position in span))
        return Episodes(tuple(prompts), int((centroids @ question_direction).argmax()))


def split_windows(token_ids: Tensor, sentence_ends: Set[int], size: int) -> list[range]:
    """Return spans of `size` consecutive sentences; the last span holds the remaining ones."""
    parts = split_sentences(token_ids, sentence_ends)
    return [
        range(parts[first].start, parts[min(first + size, len(parts)) - 1].stop) for first in range(0, len(parts), size)
    ]


def mean_direction(embedded: Tensor) -> Tensor:
    """embedded [t, width] -> the normalised mean [width], float64 on the host."""
    return torch.nn.functional.normalize(embedded.cpu().double().mean(0), dim=0)


def cluster_points(points: Tensor, count: int) -> Tensor:
    """points [point, width] -> the cluster of each, [point] int64: 0, 1, ..., at most `count` of them.

    k-means (Lloyd) with squared distances. The first centre is the point nearest to the mean; each further
    one is the point farthest from the previous centres; equal points share a cluster. Ties go to the lower
    point and the lower cluster.
    """
    starts = [int(squared_distances(points, points.mean(0)[None])[:, 0].argmin())]
    while len(starts) < count:
        nearest_distance = squared_distances(points, points[starts]).amin(-1)
        if not nearest_distance.max() > 1e-12:
            break
        starts.append(int(nearest_distance.argmax()))
    centres = points[starts].clone()
    labels = squared_distances(points, centres).argmin(-1)
    for _ in range(ROUNDS):
        for label in range(len(centres)):
            if (labels == label).any():
                centres[label] = points[labels == label].mean(0)
        previous, labels = labels, squared_distances(points, centres).argmin(-1)
        if torch.equal(previous, labels):
            break
    used_labels = sorted(set(labels.tolist()))
    return torch.tensor([used_labels.index(label) for label in labels.tolist()])


def squared_distances(points: Tensor, centres: Tensor) -> Tensor:
    """Return squared distances [point, centre], rounded so that ties do not depend on the summation order."""
    return (points[:, None] - centres).square().sum(-1).round(decimals=12)


@dataclass(frozen=True)
class PromptAttention:
    """The maximum attention that each slot receives from the tokens of a prompt fed after the text:
    [kv_head, n], also over the query heads of a group. The softmax runs over the slots alone.

    prompt: token ids; if empty, the last window of the text.
    """

    prompt: tuple[int, ...] = ()

    def passages(self, token_ids: Tensor, sentence_ends: frozenset[int]) -> tuple[Tensor, ...]:
        if self.prompt:
            return (torch.tensor(self.prompt, device=token_ids.device),)
        last = split_windows(token_ids, sentence_ends, WINDOW)[-1]
        return (token_ids[last.start : last.stop],)

    def attend(self, rows: AttentionRows, before: Tensor | None) -> Tensor:
        assert rows.logits is not None
        largest = group_max(rows.logits.softmax(-1), rows.kv_heads)
        return largest if before is None else largest.maximum(before)

    def result(self, state: Tensor) -> Tensor:
        return state


@dataclass(frozen=True)
class PatchedPrompt:
    """The attention from a prompt. The engine sets the prompt of the episode for each cache."""

    prompt: tuple[int, ...] = ()

    @property
    def needs(self) -> frozenset[Signal]:
        return frozenset({PromptAttention(self.prompt)})

    def score(self, view: View) -> Scores:
        return Scores(torch.stack(read_signal(view, PromptAttention(self.prompt))))

    def with_prompt(self, prompt: tuple[int, ...]) -> PatchedPrompt:
        return replace(self, prompt=prompt)


def epicache(*, shared: bool = False) -> Policy:
    """Keep the slots that the windows of the question's episode attend to; heads of a layer share its budget
    by their scores, without a floor, and nothing is protected.

    Defaults are those of apple/ml-epicache @ b742661: blocks of 2048, windows of 4, 4 episodes, 4 medoids,
    the level "pair", no budgets by layer (their power 0). shared: see `Episodic`; by budget the authors mean
    the slots of one cache, and so does `epicache`. Ours: no fixed instruction precedes the windows, since a
    policy has no tokenizer; the prompt follows the text, where theirs overlaps the last block by one
    position; float32 or better, where theirs is in the model's precision; and their system prompt, which is never
    evicted and stands beside the budget, competes here like all other text, since a context has no roles
    (`protect.sinks` keeps what stands first). Their scripts run another setting than the defaults: 8 medoids, which
    `cadence.medoids` sets, and budgets by layer from a measured profile, to the power 1.1 or 1.3, which is not here.
    Without `Episodic` there are no episodes, and the last window of the text is the prompt.
    """
    return Policy(
        scoring=PatchedPrompt(),
        routing=Adaptive(floor=0),
        cadence=Episodic(shared=shared),
        protect=Protect(sinks=0, recent=0),
    )
