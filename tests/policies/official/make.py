"""Make the numbers of this folder again: what official code keeps of the tensors of `official_cases`.

    PYTHONPATH=tests/policies python tests/policies/official/make.py r-kv <folder>

with a checkout of the official repository: r-kv, Zefan-Cai/R-KV @ d15c976; longflow, yisunlp/LongFLow @
89a68d3; lagkv, AI-Lab-China-Merchants-Bank/LagKV @ 2a9d19e; kvpress, NVIDIA/kvpress @ 8bb29b9; triattention,
WeianMao/triattention @ c3744ee; defensivekv, FFY0/DefensiveKV @ 9251b95. The last four need transformers.

The values are the numbers of the slots, so that what comes back says what was kept. A case whose choice hangs
on a difference of less than MARGIN between two scores is left out: rounding, or how a sort breaks ties,
decides it.
"""

import argparse
import importlib
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from official_cases import FOLDER, LAYERS, Case, digest, drawn, layers_of, projection, scored, tensors
from torch import Tensor

MARGIN = 1e-6
HEADS = ((8, 2), (4, 4), (6, 3), (4, 1))
WANTED = 20


def package(name: str, folder: Path, **members: Any) -> ModuleType:
    """A package of this name whose own `__init__` is not run."""
    made = ModuleType(name)
    made.__path__ = [str(folder)]  # type: ignore[attr-defined]
    vars(made).update(members)
    sys.modules[name] = made
    return made


def loaded(name: str, file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def ranked() -> Iterator[list[tuple[Tensor, int]]]:
    """The scores [..., n] that are ranked meanwhile, each with how many were taken."""
    seen, own = list[tuple[Tensor, int]](), torch.Tensor.topk

    def topk(self: Tensor, k: int, *args: Any, **kwargs: Any) -> Any:
        seen.append((self, k))
        return own(self, k, *args, **kwargs)

    torch.Tensor.topk = topk  # type: ignore[method-assign, assignment]
    try:
        yield seen
    finally:
        torch.Tensor.topk = own  # type: ignore[method-assign]


def decided(seen: list[tuple[Tensor, int]]) -> bool:
    """Whether no choice hangs on a difference of less than MARGIN."""
    for scores, k in seen:
        order = scores.sort(-1, descending=True).values
        if k < order.shape[-1] and (order[..., k - 1] - order[..., k]).min() < MARGIN:
            return False
    return True


def slots(values: Tensor) -> list[list[int]]:
    """values [1, kv_head, kept, d] that are slot numbers."""
    return [sorted(int(slot) for slot in head[:, 0]) for head in values[0]]


def numbered(case: Case) -> Tensor:
    return torch.arange(float(case.n)).view(1, 1, -1, 1).repeat(1, case.kv_heads, 1, case.dim)


def windowed(seed: int, **parts: Any) -> Case:
    q_heads, kv_heads = HEADS[seed % 4]
    n = 24 + 13 * (seed % 11)
    return Case(seed, q_heads, kv_heads, n, 8, budget=12 + seed % (n - 16), **parts)


def r_kv(checkout: Path) -> dict[str, Callable[[int], tuple[Case, list[list[int]]]]]:
    utils = loaded("official_rkv_utils", checkout / "rkv" / "utils.py")
    package(
        "official_rkv",
        checkout / "rkv" / "compression",
        cal_similarity=utils.cal_similarity,
        compute_attention_scores=utils.compute_attention_scores,
    )

    def keeps(module: str, kind: str, **parts: Any) -> Callable[[int], tuple[Case, list[list[int]]]]:
        def keep(seed: int) -> tuple[Case, list[list[int]]]:
            case = windowed(seed, **{name: values[seed % len(values)] for name, values in parts.items()})
            made = getattr(importlib.import_module(f"official_rkv.{module}"), kind)(
                budget=case.budget, window_size=case.window, kernel_size=case.kernel, mix_lambda=case.weight
            )
            own = tensors(case)
            return case, slots(made.update_kv(own.keys[None], own.queries[None], numbered(case))[1])

        return keep

    return {
        "r-kv": keeps("r1_kv", "R1KV", kernel=(7, 3, 1), weight=(0.1, 0.07, 0.5, 0.9)),
        "snapkv-rkv": keeps("snapkv", "SnapKV", kernel=(7, 3, 1)),
        "streamingllm-rkv": keeps("streamingllm", "StreamingLLM"),
    }


def longflow(checkout: Path) -> dict[str, Callable[[int], tuple[Case, list[list[int]]]]]:
    # Their kernel is for another device: this file holds the reference that they test it against.
    reference = loaded("official_longflow", checkout / "triton_kernel" / "acc_test.py")

    def keep(seed: int) -> tuple[Case, list[list[int]]]:
        q_heads, kv_heads = HEADS[seed % 4]
        case = Case(seed, q_heads, kv_heads, 20 + 9 * (seed % 11), 8, budget=0, window=1, masked=seed % 5)
        case = case._replace(budget=case.n - case.masked - 1)
        own = tensors(case)
        # Slots that are not filled come last and are masked for the attention; they are the first to be
        # overwritten, so that the choice among the others is read off the loss.
        there = torch.arange(case.n) < case.n - case.masked
        group = SimpleNamespace(num_key_value_groups=q_heads // kv_heads)
        parts = (own.queries[None], own.keys[None], own.values[None], there[None])
        loss = reference.evict_attention_forward_pytorch_ref(group, *parts, case.dim**-0.5)[2][0]
        assert case.masked == 0 or int(loss.argmin()) >= case.n - case.masked
        with ranked():
            kept = loss[there].topk(case.budget).indices
        lowest = loss[there].sort().values
        if lowest[1] - lowest[0] < MARGIN:
            return case, []
        return case, [sorted(kept.tolist())]

    return {"longflow": keep}


def lagkv(checkout: Path) -> dict[str, Callable[[int], tuple[Case, list[list[int]]]]]:
    official = loaded("official_lagkv", checkout / "lag_kv.py").LagKV

    def keep(seed: int) -> tuple[Case, list[list[int]]]:
        case, share = chunked(seed)
        own, cache = tensors(case), object.__new__(official)
        parts = {"ratio": share / case.lag, "sink_size": case.sinks, "lag_size": case.lag, "score_v_ratio": 1.0}
        vars(cache).update(parts, key_cache=[own.keys[None].clone()], _compressed_len=[case.sinks])
        cache.value_cache = [own.values[None].clone()]
        # What was kept is told by the keys, which are all different: values are scored here too.
        cache._compress_algo(0, case.sinks)
        kept = cache.key_cache[0][0]
        same = (kept[:, :, None] == own.keys[:, None]).all(-1)
        assert (same.sum(-1) == 1).all()
        return case, [sorted(head.tolist()) for head in same.int().argmax(-1)]

    return {"lagkv": keep}


def chunked(seed: int) -> tuple[Case, int]:
    """A case, and how many slots each ranked chunk keeps."""
    q_heads, kv_heads = HEADS[seed % 4]
    sinks, lag, chunks, rest = (4, 16, 0)[seed % 3], (8, 16, 32)[seed % 3], 2 + seed % 4, seed % 7
    n, share = sinks + lag * chunks + rest, 1 + seed % (lag - 1)
    budget = sinks + share * (chunks - 1) + lag + rest
    return Case(seed, q_heads, kv_heads, n, 8, budget, window=1, sinks=sinks, lag=lag), share


def kvpress(checkout: Path) -> dict[str, Callable[[int], tuple[Case, list[list[int]]]]]:
    package("kvpress", checkout / "kvpress")
    package("kvpress.presses", checkout / "kvpress" / "presses")
    press = importlib.import_module("kvpress.presses.lagkv_press").LagKVPress

    def keep(seed: int) -> tuple[Case, list[list[int]]]:
        case, _ = chunked(seed)
        own = tensors(case)
        made = press(compression_ratio=0.5, n_sink=case.sinks, lag_size=case.lag)
        scores = made.score(None, None, own.keys[None], own.values[None], None, {})[0]
        # Of equal ranks in all chunks all or none are kept, so that no order of a sort decides.
        return case, [sorted(head.topk(case.budget).indices.tolist()) for head in scores]

    return {"lagkv-kvpress": keep}


def defensivekv(checkout: Path) -> dict[str, Callable[[int], tuple[Case, list[list[int]]]]]:
    """Their presses, with their own plain code in the place of their kernel for another device."""
    package("kvpress", checkout / "kvpress")
    package("kvpress.ops", checkout / "kvpress" / "ops")
    package("kvpress.ops.vw_norm", checkout, vw_l1norm=None)
    package("kvpress.presses", checkout / "kvpress" / "presses")
    package("kvpress.presses.base_press", checkout, BasePress=type("BasePress", (), {}))
    package("kvpress.presses.scorer_press", checkout, ScorerPress=type("ScorerPress", (), {}))

    def keeps(module: str, kind: str, layers: int) -> Callable[[int], tuple[Case, list[list[int]]]]:
        official = getattr(importlib.import_module(f"kvpress.presses.{module}"), kind)

        def keep(seed: int) -> tuple[Case, list[list[int]]]:
            case = windowed(seed)._replace(layers=layers, width=12)
            case = case._replace(n=case.n + 2 * case.window, kernel=(5, 3, 1)[seed % 3])
            if seed % 2:  # a budget that leaves the first stage to its threshold
                case = case._replace(budget=case.n - 2 - seed % 5)
            own = [tensors(of_layer) for of_layer in layers_of(case)]
            heads, lengths = case.kv_heads, dict[int, list[int]]()
            cache = SimpleNamespace(layer_scores=[])
            cache.key_cache, cache.value_cache = (
                [getattr(parts, name).reshape(-1, case.dim) for parts in own] for name in ("keys", "values")
            )
            cache.metadata_list = [
                SimpleNamespace(
                    bsz=1,
                    num_key_value_heads=heads,
                    head_lens=[case.n] * heads,
                    _update_metadata_while_compressing=lambda counts, *_, layer=layer: lengths.__setitem__(
                        layer, counts.tolist()
                    ),
                )
                for layer in range(layers)
            ]
            # They truncate n * (1 - ratio) * heads, and for the first stage (n - window) * (1 - ratio).
            press = official(compression_ratio=1 - (case.budget + 0.001) / case.n)
            press.window_size, press.kernel_size = case.window, case.kernel
            press.vwl1norm_triton = press.vwl1norm
            kept = []
            for layer, parts in enumerate(own):
                hidden = parts.queries.transpose(0, 1).reshape(1, case.window, -1)
                before = hidden.new_zeros(1, case.n - case.window, hidden.shape[-1])
                unrotated = torch.ones(1, case.n, case.dim), torch.zeros(1, case.n, case.dim)
                projected = projection(layers_of(case)[layer])
                module = SimpleNamespace(
                    config=SimpleNamespace(
                        num_attention_heads=case.q_heads,
                        num_key_value_heads=heads,
                        num_hidden_layers=layers,
                        hidden_size=projected.shape[-1],
                    ),
                    head_dim=case.dim,
                    layer_idx=layer,
                    num_key_value_groups=case.q_heads // heads,
                    q_proj=torch.nn.Identity(),
                    o_proj=SimpleNamespace(weight=projected.flatten(0, 1).T),
                )
                named = {"past_key_value": cache, "position_embeddings": unrotated}
                whole = torch.cat([before, hidden], 1), cache.key_cache[layer], cache.value_cache[layer]
                kept.append(press.compress(module, *whole, None, named)[0])
            if layers > 1:
                kept = cache.key_cache
            found = []
            for layer, parts in enumerate(own):
                for keys, some in zip(parts.keys, kept[layer].split(lengths[layer]), strict=True):
                    same = (some[:, None] == keys).all(-1)
                    assert (same.sum(-1) == 1).all()
                    found.append(sorted(same.int().argmax(-1).tolist()))
            # A head without its window is one that ours never leaves so.
            own_window = set(range(case.n - case.window, case.n))
            return case, found if all(own_window <= set(head) for head in found) else []

        return keep

    return {
        "defensivekv": keeps("efficient_defensivekv_press", "EfficientDefensiveKVPress", 1),
        "layer-defensivekv": keeps("efficient_layer_defensivekv_press", "EfficientLayerDefensiveKVPress", 3),
    }


def triattention(checkout: Path) -> dict[str, Callable[[int], tuple[Case, list[list[int]]]]]:
    """Their class without its constructor, which reads files: all in float64, no noise, nothing pinned."""
    for name in ("", ".common", ".methods"):
        package(f"official_tri{name}", checkout.joinpath("triattention", *name.split(".")))
    utils = importlib.import_module("official_tri.methods.pruning_utils")
    official = importlib.import_module("official_tri.methods.triattention").TriAttention

    def keep(seed: int) -> tuple[Case, list[list[int]]]:
        case = windowed(seed, window=1)
        own = scored(case)
        heads = [(layer, head) for layer in range(LAYERS) for head in range(case.q_heads)]

        def rotary(base: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
            angles = (positions[..., None].double() * own.frequencies).repeat(1, 1, 2)
            return angles.cos(), angles.sin()

        made = object.__new__(official)
        vars(made).update(
            config=SimpleNamespace(device=torch.device("cpu"), dtype=torch.float64, layer_perhead_aggregation="max"),
            budget=case.budget,
            allow_prefill_compression=True,
            normalize_scores=True,
            generator=None,
            per_head_pruning=False,
            per_layer_perhead_pruning=True,
            score_aggregation="mean",
            disable_mlr=False,
            disable_trig=False,
            sampled_heads=heads,
            head_stats={at: utils.HeadFrequencyStats(own.query_mean[at], own.query_magnitude[at]) for at in heads},
            rotary=rotary,
            rope_style="half",
            attention_scale=1.0,
            head_dim=case.dim,
            omega=own.frequencies,
            offsets=utils.build_geometric_offsets(65536, torch.device("cpu")),
            freq_scale_sq=torch.ones(case.dim // 2),
            num_attention_heads=case.q_heads,
            num_key_value_heads=case.kv_heads,
            num_key_value_groups=case.q_heads // case.kv_heads,
            cache_positions=own.positions[0, 0].tolist(),
            cache_positions_per_head=None,
            cache_positions_per_layer_perhead={
                (layer, head): own.positions[layer, head].tolist()
                for layer in range(LAYERS)
                for head in range(case.kv_heads)
            },
            absolute_position=own.seen,
        )
        kept = made.compute_keep_indices(tuple((keys[None].double(), None) for keys in own.keys))
        return case, [sorted(head.tolist()) for head in kept.flatten(0, 1)]

    return {"1d-per-head": keep}


MAKERS = {
    "r-kv": r_kv,
    "longflow": longflow,
    "lagkv": lagkv,
    "kvpress": kvpress,
    "defensivekv": defensivekv,
    "triattention": triattention,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("source", choices=MAKERS)
    parser.add_argument("checkout", type=Path)
    args = parser.parse_args()
    for method, keep in MAKERS[args.source](args.checkout).items():
        cases, left_out = [], 0
        seed = 0
        while len(cases) < WANTED:
            with ranked() as seen:
                case, kept = keep(seed)
            if kept and decided(seen):
                given = digest(case, scored if args.source == "triattention" else drawn)
                cases.append({"case": case._asdict(), "tensors": given, "kept": kept})
            else:
                left_out += 1
            seed += 1
        text = json.dumps({"left_out": left_out, "cases": cases}, separators=(",", ":"))
        (FOLDER / f"{method}.json").write_text(text.replace('{"case"', '\n{"case"') + "\n")
        print(f"{method}: {len(cases)} cases, {left_out} left out")


if __name__ == "__main__":
    main()
