"""EpiCache: windows, clusters and prompts by hand, and what a prompt looks at."""

import pytest
import torch

import policies
from policies import AttentionRows, Scores, View
from policies.epicache import Episodic, PatchedPrompt, PromptAttention, cluster_points, epicache, split_windows

END = frozenset({9})
TOY = (
    ((0.3, 0.1, 0.1, 0.2, 0.2, 0.1), (0.1, 0.1, 0.5, 0.1, 0.1, 0.1)),
    ((0.4, 0.1, 0.1, 0.2, 0.1, 0.1), (0.2, 0.05, 0.25, 0.1, 0.3, 0.1)),
)
"""Attention of two query heads of one group, from two tokens of a prompt to six slots; rows sum to 1."""


def test_the_largest_of_rows_and_heads_by_hand():
    """The rows come as logits beside what the prompt gives to itself, which the softmax leaves out."""
    signal, weights = PromptAttention((1, 2)), torch.tensor(TOY)
    rows = AttentionRows(0.25 * weights, 0, 0, 2, 1, logits=weights.log() - 3)
    score = signal.result(signal.attend(rows, None))
    torch.testing.assert_close(score, torch.tensor([[0.4, 0.1, 0.5, 0.2, 0.3, 0.1]]))
    halves = [rows._replace(logits=rows.logits[:, at : at + 1], start=at) for at in (0, 1)]
    torch.testing.assert_close(signal.attend(halves[1], signal.attend(halves[0], None)), score)
    view = View(torch.arange(6), 1, 1, END, 0, {PromptAttention((1, 2)): (score,)})
    policy = policies.get("epicache", scoring=PatchedPrompt((1, 2)))
    assert policy.keep(view, 3)[0, 0].nonzero().flatten().tolist() == [0, 2, 4]


def test_heads_of_a_layer_share_its_budget_by_the_best_of_both_without_a_floor():
    scores = torch.tensor([[[0.9, 0.8, 0.7, 0.6], [0.1, 0.2, 0.05, 0.02]], [[0.1, 0.9, 0.2, 0.8]] * 2])
    view = View(torch.arange(4), 2, 2, END, 0, {})
    policy = epicache()
    protected = torch.zeros(1, 1, 4, dtype=torch.bool)
    assert policy.routing.allocate(view, Scores(scores), protected, 2).counts.tolist() == [[4, 0], [2, 2]]


def test_windows_are_sentences_taken_together_and_what_is_left():
    text = torch.tensor([1, 9, 2, 2, 9, 3, 9, 4, 4, 9, 5, 5])
    assert split_windows(text, END, 2) == [range(0, 5), range(5, 10), range(10, 12)]
    assert split_windows(text, END, 4) == [range(0, 10), range(10, 12)]
    assert split_windows(text, frozenset(), 4) == [range(0, 12)]


def test_clusters_of_points_on_a_line_by_hand():
    """The mean is 4.2: the start is 6, then the farthest, 0, then 12 of the rest."""
    points = torch.tensor([[0.0], [1.0], [6.0], [2.0], [12.0]], dtype=torch.float64)
    assert cluster_points(points, 1).tolist() == [0, 0, 0, 0, 0]
    assert cluster_points(points, 2).tolist() == [0, 0, 1, 0, 1] or cluster_points(points, 2).tolist() == [
        1,
        1,
        0,
        1,
        0,
    ]
    assert [len(set(cluster_points(points, count).tolist())) for count in (1, 2, 3, 5, 9)] == [1, 2, 3, 5, 5]
    same = torch.ones(4, 3, dtype=torch.float64)
    assert cluster_points(same, 3).tolist() == [0, 0, 0, 0]


def plain_means(points, labels):
    """Sum of squared distances to the mean of the own cluster, by loops."""
    total = 0.0
    for label in set(labels):
        own = [point for point, other in zip(points, labels, strict=True) if other == label]
        mean = [sum(column) / len(own) for column in zip(*own, strict=True)]
        total += sum((a - b) ** 2 for point in own for a, b in zip(point, mean, strict=True))
    return total


def test_no_single_point_would_lie_better_in_another_cluster():
    """A fixed point of Lloyd: every point is nearest to the mean of its own cluster."""
    generator = torch.Generator().manual_seed(4)
    points = torch.randn(40, 3, dtype=torch.float64, generator=generator)
    labels = cluster_points(points, 4).tolist()
    assert set(labels) == {0, 1, 2, 3}
    means = [points[[i for i, own in enumerate(labels) if own == label]].mean(0) for label in range(4)]
    for point, label in zip(points, labels, strict=True):
        apart = [float((point - mean).norm()) for mean in means]
        assert apart[label] == pytest.approx(min(apart))
    # And far better than clusters drawn at random.
    drawn = torch.randint(4, (40,), generator=generator).tolist()
    assert plain_means(points.tolist(), labels) < 0.7 * plain_means(points.tolist(), drawn)


EMBEDDED = {1: (1.0, 0.0), 2: (0.9, 0.1), 3: (0.0, 1.0), 4: (0.2, 0.9), 9: (0.0, 0.0)}


def planned(question=None, **settings):
    """Six sentences: 1., 3., 2., 1., 4., 3. in the plane."""
    text = torch.tensor([1, 9, 3, 9, 2, 9, 1, 9, 4, 9, 3, 9])
    embedded = torch.tensor([EMBEDDED[int(token)] for token in text])
    question = None if question is None else torch.tensor([EMBEDDED[token] for token in question])
    cadence = Episodic(**{"episodes": 2, "window": 1, "medoids": 2, **settings})
    return cadence.plan_episodes(text, embedded, question, END)


def test_the_prompts_and_the_choice_by_hand():
    """1., 2. and 1. are one episode, whose centroid 1. is nearest to; 3., 4. and 3. the other."""
    first = planned()
    assert set(first.prompts) == {(1, 9, 1, 9), (3, 9, 3, 9)}
    assert first.prompts[first.chosen] == (3, 9, 3, 9)  # the last window is the question
    asked = planned(question=(2, 9))
    assert asked.prompts == first.prompts
    assert asked.prompts[asked.chosen] == (1, 9, 1, 9)
    whole = planned(medoids=3)
    assert set(whole.prompts) == {(1, 9, 2, 9, 1, 9), (3, 9, 4, 9, 3, 9)}  # in the order of the text
    assert planned(episodes=1, medoids=9).prompts == ((1, 9, 3, 9, 2, 9, 1, 9, 4, 9, 3, 9),)


def test_a_budget_is_that_of_a_cache_or_of_all_of_them():
    one, shared = (policies.get(name).cadence for name in ("epicache", "epicache-shared-budget"))
    assert (one.budgets(203), shared.budgets(203), shared.budgets(3)) == ((203,), (50,), (1,))
    pair = policies.diff(policies.get("epicache"), policies.get("epicache-shared-budget"))
    assert set(pair) == {"cadence"}
