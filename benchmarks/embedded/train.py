"""Train an embedded model from nothing: first to look up, then to follow chains of growing length.

    python -m benchmarks.embedded.train llama build/chain-llama      about half an hour on two cores
    python -m benchmarks.embedded.train qwen2 build/chain-qwen2

Writes a folder that transformers loads: weights, configuration, tokenizer, training.json (the recipe and how
it went) and the digests of all of them. Where look-up does not form in time, the next seed begins. Exit
status: 0 done, 2 refused.
"""

import math
import random
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel
from transformers import PreTrainedTokenizerFast as Words

from benchmarks.embedded import training
from benchmarks.embedded.training import NOT_SCORED, build
from benchmarks.embedded.vocabulary import tokenizer
from protocol.tasks.chain import MOST_DISTRACTORS, OPERATORS, VARIABLES, puzzle

FAMILIES = ("llama", "qwen2")
QUERIES = 32  # look-ups asked for in a drill
LOOKED_UP = 0.1  # loss of a drill that is learned
PASSING, LATELY = 0.9, 10
SEEDS = 10  # tried in turn


@dataclass(frozen=True)
class Recipe:
    """What a training run is made of.

    The order matters more than the size: chains before look-up has formed, higher learning rates or more
    layers leave such a model on a plateau for thousands of steps.
    """

    family: str
    seed: int = 0
    width: int = 128
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    batch: int = 64
    rate: float = 5e-4
    most_pairs: int = 32
    """Pairs in the longest drill; the first has four, and each next one twice as many."""
    patience: int = 600
    """Updates within which look-up has to form, else the next seed begins."""
    longest: int = 24
    """Steps of the longest chain; each step longer comes with a distractor more, up to MOST_DISTRACTORS."""
    polish: int = 400
    """Updates on chains of every length, at a rate that falls to zero, once the longest are learned."""


class Unlucky(Exception):
    """Look-up has not formed with this seed."""


class Learned(NamedTuple):
    """right: the share of rows in which every scored token came first."""

    loss: float
    right: float


def drill(size: int, count: int, words: Words, source: random.Random) -> tuple[Tensor, Tensor]:
    """`count` rows of `size` pairs, then QUERIES keys in any order, each of which asks for its value.

    Returns token ids [row, t] and labels [row, t].
    """
    rows = []
    for _ in range(count):
        names, targets = (source.sample(VARIABLES, len(VARIABLES)) for _ in range(2))
        if source.random() < 0.5:
            pairs = [f"{name} >{target}" for name, target in zip(names, targets, strict=True)][:size]
        else:
            pairs = [f"@{name} {source.choice(OPERATORS)}" for name in names[:size]]
        rows.append(" ".join([words.bos_token, *pairs, *source.choices(pairs, k=QUERIES)]))
    ids = torch.tensor(words(rows, add_special_tokens=False)["input_ids"])
    labels = torch.full_like(ids, NOT_SCORED)
    labels[:, 2 * size + 2 :: 2] = ids[:, 2 * size + 2 :: 2]
    return ids, labels


def chains(steps: int, distractors: int, count: int, words: Words, source: random.Random) -> tuple[Tensor, Tensor]:
    """`count` puzzles of one size, and so of one length: ids, labels from the first step on [row, t]."""
    rows, asked = [], 0
    for _ in range(count):
        made = puzzle(steps, distractors, source)
        message = [{"role": "user", "content": f"{made.definitions}\n{made.question}"}]
        prompt = words.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
        rows.append(f"{prompt} {made.solution} {words.eos_token}")
        asked = len(prompt.split())
    ids = torch.tensor(words(rows, add_special_tokens=False)["input_ids"])
    labels = ids.clone()
    labels[:, :asked] = NOT_SCORED
    return ids, labels


def learn(network: PreTrainedModel, optimiser: torch.optim.Optimizer, ids: Tensor, labels: Tensor) -> Learned:
    """One update."""
    logits = network(ids).logits[:, :-1]
    aim = labels[:, 1:]
    scored = aim != NOT_SCORED
    loss = functional.cross_entropy(logits[scored], aim[scored])
    optimiser.zero_grad()
    torch.autograd.backward(loss)
    torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
    optimiser.step()
    right = ((logits.argmax(-1) == aim) | ~scored).all(-1)
    return Learned(loss.item(), right.float().mean().item())


def train(recipe: Recipe, say: Callable[[str], None]) -> tuple[PreTrainedModel, list[dict[str, Any]]]:
    """The network, and what was learned when. Raises Unlucky when look-up has not formed in time.

    A drill is passed with one batch of a loss below LOOKED_UP, a length of chain when of its last ten batches
    nine were right (shares add up), whole sequences under teacher forcing. Chains take as long as they take,
    and every fifth batch among them is still a drill.
    """
    words, source = tokenizer(), random.Random(f"{recipe.family}|{recipe.seed}")
    network = build(recipe, words)
    optimiser = torch.optim.AdamW(network.parameters(), lr=recipe.rate, weight_decay=0.0)
    started, updates, history = time.monotonic(), 0, list[dict[str, Any]]()
    learned = Learned(math.inf, 0.0)

    def update(batch: tuple[Tensor, Tensor]) -> Learned:
        nonlocal updates
        updates += 1
        return learn(network, optimiser, *batch)

    def passed(stage: str, loss: float) -> None:
        history.append({"stage": stage, "updates": updates, "loss": round(loss, 5)})
        say(f"{stage}: after {updates} updates, {time.monotonic() - started:.0f} s; loss {loss:.4f}")

    size = 4
    while size <= recipe.most_pairs:
        learned = update(drill(size, recipe.batch, words, source))
        if learned.loss < LOOKED_UP:
            passed(f"{size} pairs", learned.loss)
            size *= 2
        elif updates >= recipe.patience:
            raise Unlucky(f"seed {recipe.seed}: no look-up within {recipe.patience} updates")
    for steps in range(1, recipe.longest + 1):
        lately = deque[float]([0.0], maxlen=LATELY)
        while sum(lately) < PASSING * LATELY:
            if updates % 5 == 0:
                update(drill(recipe.most_pairs, recipe.batch, words, source))
            now = steps if source.random() < 0.6 else source.randint(1, steps)
            learned = update(chains(now, min(now, MOST_DISTRACTORS), recipe.batch, words, source))
            if now == steps:
                lately.append(learned.right)
        passed(f"chains of {steps}", learned.loss)
    for left in reversed(range(recipe.polish)):
        for group in optimiser.param_groups:
            group["lr"] = recipe.rate * (left + 1) / recipe.polish
        steps, distractors = source.randint(1, recipe.longest), source.randint(1, MOST_DISTRACTORS)
        learned = update(chains(steps, distractors, recipe.batch, words, source))
        if left % 100 == 0:
            passed(f"polish, {left} to go", learned.loss)
    return network, history


def main(argv: Sequence[str] | None = None) -> int:
    given = training.read_arguments(training.make_parser("train", __doc__, Recipe, FAMILIES), argv)
    if given is None:
        return 2
    folder = given.pop("folder")
    recipe = Recipe(**given)
    for seed in range(recipe.seed, recipe.seed + SEEDS):
        try:
            recipe = replace(recipe, seed=seed)
            network, history = train(recipe, lambda line: print(line, flush=True))
            break
        except Unlucky as unlucky:
            print(unlucky, flush=True)
    else:
        print(f"patience: no look-up with any of {SEEDS} seeds; raise it", file=sys.stderr)
        return 2
    training.save(network, tokenizer(), recipe, history, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
