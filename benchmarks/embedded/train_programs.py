"""Train an embedded model from nothing to execute, look up and write straight-line programs.

    python -m benchmarks.embedded.train_programs llama build/programs-llama      minutes on an accelerator
    python -m benchmarks.embedded.train_programs qwen3 build/programs-qwen3

Writes a folder that transformers loads: weights in float16, configuration, tokenizer, training.json (the recipe
and how it went) and the digests of all of them. A run that was stopped continues from its last checkpoint, which
stands beside the folder, and ends with the same weights. Every batch depends on the seed and its number alone.
Exit status: 0 done, 2 refused, 75 stopped before the end (--stop-after).
"""

import argparse
import contextlib
import json
import os
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from benchmarks.embedded import vocabulary
from protocol.models import checksums
from protocol.tasks.chain import draw_below
from protocol.tasks.straight_line import Worked, executed, looked_up, written

__all__ = ["FAMILIES", "Recipe", "build", "train"]

FAMILIES = {"llama": (LlamaConfig, LlamaForCausalLM), "qwen3": (Qwen3Config, Qwen3ForCausalLM)}
NOT_SCORED = -100  # the label that cross_entropy leaves out
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


def build(recipe: Recipe) -> PreTrainedModel:
    config, network = FAMILIES[recipe.family]
    torch.manual_seed(recipe.seed)
    words = vocabulary.programs_words()
    made = network(
        config(
            vocab_size=len(words),
            hidden_size=recipe.width,
            intermediate_size=4 * recipe.width,
            num_hidden_layers=recipe.layers,
            num_attention_heads=recipe.heads,
            num_key_value_heads=recipe.kv_heads,
            head_dim=recipe.width // recipe.heads,
            max_position_embeddings=2048,
            bos_token_id=words["<s>"],
            eos_token_id=words["</s>"],
            pad_token_id=words["<pad>"],
            tie_word_embeddings=False,
        )
    )
    assert isinstance(made, PreTrainedModel)
    return made


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
    """The network and its history; None where the time is over, after which a second call goes on."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    checkpoint = folder.with_suffix(".checkpoint")
    network = build(recipe).to(device)
    optimiser = torch.optim.AdamW(
        network.parameters(), lr=recipe.rate, betas=(0.9, 0.95), weight_decay=0.05, fused=device == "cuda"
    )
    first, history = 0, list[dict[str, Any]]()
    if checkpoint.exists():
        kept = torch.load(checkpoint, map_location=device, weights_only=True)
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
    torch.save(state | {"updates": update, "history": history}, checkpoint)
    print(f"{recipe.family}: {update} of {recipe.updates} updates; run again to go on", flush=True)
    return None


def save(network: PreTrainedModel, recipe: Recipe, history: list[Any], folder: Path) -> None:
    network.to("cpu", torch.float16).save_pretrained(folder)
    vocabulary.programs_tokenizer().save_pretrained(folder)
    told = {"recipe": asdict(recipe), "torch": str(torch.__version__), "history": history}
    if torch.cuda.is_available():
        told["device"] = torch.cuda.get_device_name()
    (folder / "training.json").write_text(json.dumps(told, indent=1) + "\n")
    with contextlib.suppress(FileNotFoundError):
        folder.with_suffix(".checkpoint").unlink()
    checksums.write_sums(folder)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.embedded.train_programs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("family", choices=sorted(FAMILIES))
    parser.add_argument("folder", type=Path, help="must not exist yet")
    for field in fields(Recipe)[1:]:
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=type(field.default), default=field.default)
    parser.add_argument("--stop-after", type=float, default=float("inf"), help="seconds, then a checkpoint")
    parser.add_argument("--workers", type=int, default=2, help="processes that draw programs")
    given = vars(parser.parse_args(argv))
    folder, stop_after, workers = (given.pop(name) for name in ("folder", "stop_after", "workers"))
    if folder.exists():
        print(f"{folder}: exists; name a new folder", file=sys.stderr)
        return 2
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)  # an accelerator's attention has none backwards
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.set_float32_matmul_precision("high")
    recipe = Recipe(**given)
    trained = train(recipe, folder, stop_after, workers)
    if trained is None:
        return STOPPED
    save(*trained[:1], recipe, trained[1], folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
