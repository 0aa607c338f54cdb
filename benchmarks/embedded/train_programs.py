"""Train an embedded model from nothing to execute, look up and write straight-line programs.

    python -m benchmarks.embedded.train_programs llama build/programs-llama      minutes on an accelerator
    python -m benchmarks.embedded.train_programs qwen3 build/programs-qwen3

Writes a folder that transformers loads: weights in float16, configuration, tokenizer, training.json (the recipe
and how it went) and the digests of all of them. A run that was stopped continues from its last checkpoint, which
stands beside the folder. Every batch depends on the seed and its number alone, so that both end with the same
weights where the device computes the same twice; an accelerator's attention does not.
Exit status: 0 done, 2 refused, 75 stopped before the end (--stop-after).
"""

import json
import os
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset
from transformers import PreTrainedModel

from benchmarks.embedded import training, vocabulary
from benchmarks.embedded.training import NOT_SCORED
from protocol.tasks.chain import draw_below
from protocol.tasks.straight_line import Worked, executed, looked_up, written

FAMILIES = ("llama", "qwen3")
STOPPED = 75  # EX_TEMPFAIL: run the command again
LENGTHS = {256: (1, 5), 512: (4, 12), 832: (9, 20)}  # tokens of a row, and the lines of its programs
SHORT = min(LENGTHS)


@dataclass(frozen=True)
class Recipe:
    family: str
    seed: int = 0
    width: int = 256
    layers: int = 4
    heads: int = 8
    kv_heads: int = 4
    tokens: int = 79872
    """Of an update, padding included."""
    updates: int = 6000
    rate: float = 1.5e-3
    """After a warm-up of 200 updates; over the last quarter it falls to zero in a line."""
    short: int = 800
    """The first updates, of the shortest rows alone; later two of ten are of these, and five of the longest."""


class OtherRecipe(Exception):
    """A checkpoint is of another recipe; the message says of which."""


class Rows(NamedTuple):
    ids: Tensor
    """[row, t]"""
    labels: Tensor
    """[row, t]: the ids of the trace and its end, else NOT_SCORED."""


class Batches(Dataset[Rows]):
    def __init__(self, recipe: Recipe):
        self.recipe, self.words = recipe, vocabulary.programs_words()

    def __len__(self) -> int:
        return self.recipe.updates

    def __getitem__(self, update: int) -> Rows:
        source = random.Random(f"{self.recipe.family}|{self.recipe.seed}|{update}")
        length = SHORT if update < self.recipe.short else source.choices(tuple(LENGTHS), (2, 3, 5))[0]
        return rows(length, self.recipe.tokens // length, self.words, source)


def draw_worked(length: int, source: random.Random) -> Worked:
    least, most = LENGTHS[length]
    form, count = source.random(), least + draw_below(most + 1 - least, source)
    if form < 0.65:
        return executed(count, draw_below(count + 1, source), source)
    if form < 0.85:
        hops = 1 + draw_below(3, source)
        return looked_up(hops, 1 + draw_below(16 // hops, source), draw_below(length // 9, source), source)
    return written(count + 1, draw_below(length // 24, source), source)


def rows(length: int, count: int, words: dict[str, int], source: random.Random) -> Rows:
    """`count` rows of one padded length, at least half full; what does not fit is drawn again."""
    ids = torch.full((count, length), words["<pad>"], dtype=torch.int16)
    labels = torch.full_like(ids, NOT_SCORED)
    for row in range(count):
        text, asked = list[int](), 0
        while not length < 2 * len(text) <= 2 * length:
            worked = draw_worked(length, source)
            prompt = ["<s>", *worked.prompt().split(), "<think>"]
            text, asked = [words[word] for word in (*prompt, *worked.trace.split(), "</s>")], len(prompt)
        line = torch.tensor(text, dtype=torch.int16)
        ids[row, : len(text)] = line
        labels[row, asked : len(text)] = line[asked:]
    return Rows(ids, labels)


def rate_at(recipe: Recipe, update: int) -> float:
    left = (recipe.updates - update) / (0.25 * recipe.updates)
    return recipe.rate * min(1.0, (update + 1) / 200, left)


def losses(network: Any, batch: Rows, device: str) -> tuple[Tensor, Tensor]:
    """Return the mean loss, and the share of rows of which every scored token comes first."""
    ids, labels = (part.to(device, non_blocking=True).long() for part in batch)
    with torch.autocast(device, torch.bfloat16):
        logits = network(input_ids=ids, use_cache=False).logits[:, :-1]
    aim = labels[:, 1:]
    loss = functional.cross_entropy(logits.float().flatten(0, 1), aim.flatten(), ignore_index=NOT_SCORED)
    right = ((logits.argmax(-1) == aim) | (aim == NOT_SCORED)).all(-1)
    return loss, right.float().mean()


def train(recipe: Recipe, folder: Path, stop_after: float, workers: int) -> tuple[PreTrainedModel, list[Any]] | None:
    """The network and its history; None where the time is over, after which a second call goes on. Raises OtherRecipe
    for the checkpoint of another recipe.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    checkpoint = folder.with_suffix(".checkpoint")
    network = training.build(recipe, vocabulary.programs_tokenizer()).to(device)
    optimiser = torch.optim.AdamW(
        network.parameters(), lr=recipe.rate, betas=(0.9, 0.95), weight_decay=0.05, fused=device == "cuda"
    )
    first, history = 0, list[dict[str, Any]]()
    if checkpoint.exists():
        kept = torch.load(checkpoint, map_location=device, weights_only=True)
        if (other := kept.get("recipe")) != asdict(recipe):
            raise OtherRecipe(f"{checkpoint}: is of another recipe, {other}; give that one, or remove the file")
        network.load_state_dict(kept["network"])
        optimiser.load_state_dict(kept["optimiser"])
        first, history = kept["updates"], kept["history"]
    compiled = torch.compile(network, dynamic=False) if device == "cuda" else network
    left = torch.utils.data.Subset(Batches(recipe), range(first, recipe.updates))
    loader = DataLoader(left, batch_size=None, num_workers=workers, prefetch_factor=16 if workers else None)
    started, update = time.monotonic(), first
    for update, batch in enumerate(loader, first):
        if time.monotonic() - started > stop_after:
            break
        for group in optimiser.param_groups:
            group["lr"] = rate_at(recipe, update)
        loss, right = losses(compiled, batch, device)
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
        if update % 100 == 0 or update == recipe.updates - 1:
            told = {"update": update, "length": batch.ids.shape[1]}
            told |= {"loss": round(loss.item(), 5), "right": round(right.item(), 4)}
            history.append(told)
            print(recipe.family, json.dumps(told), f"{time.monotonic() - started:.0f} s", flush=True)
    else:
        return network, history
    state = {"network": network.state_dict(), "optimiser": optimiser.state_dict()}
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    torch.save(state | {"recipe": asdict(recipe), "updates": update, "history": history}, checkpoint)
    print(f"{recipe.family}: {update} of {recipe.updates} updates; run again to go on", flush=True)
    return None


def main(argv: Sequence[str] | None = None) -> int:
    parser = training.make_parser("train_programs", __doc__, Recipe, FAMILIES)
    parser.add_argument("--stop-after", type=float, default=float("inf"), help="seconds, then a checkpoint")
    parser.add_argument("--workers", type=int, default=2, help="processes that draw programs")
    given = training.read_arguments(parser, argv)
    if given is None:
        return 2
    folder, stop_after, workers = (given.pop(name) for name in ("folder", "stop_after", "workers"))
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)  # an accelerator's attention has none backwards
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.set_float32_matmul_precision("high")
    recipe = Recipe(**given)
    try:
        trained = train(recipe, folder, stop_after, workers)
    except OtherRecipe as refusal:
        print(refusal, file=sys.stderr)
        return 2
    if trained is None:
        return STOPPED
    network, history = trained
    device = {"device": torch.cuda.get_device_name()} if torch.cuda.is_available() else {}
    network.to("cpu", torch.float16)
    training.save(network, vocabulary.programs_tokenizer(), recipe, history, folder, **device)
    folder.with_suffix(".checkpoint").unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
