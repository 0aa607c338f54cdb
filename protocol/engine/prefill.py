"""One forward of the context for all lanes, which measures their signals; then each keeps its slots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from policies import Signal, View
from protocol.engine import sampling, slots
from protocol.engine.lanes import Lane, LaneFailure, Model
from protocol.evidence.refusals import BadInput


class Recorder:
    """The passenger of the prefill: attends by the fused kernel, and measures the signals layer by layer."""

    def __init__(self, signals: Sequence[Signal]) -> None:
        self.signals: dict[Signal, list[Any]] = {signal: [] for signal in signals}
        self.keys: list[Tensor] = []  # one a layer, [kv_head, n, d]
        self.values: list[Tensor] = []

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
        for signal, measured in self.signals.items():
            measured.append(signal.measure(layer, queries[0], keys[0], scale))
        self.keys.append(keys[0])
        self.values.append(values[0])
        grouped = queries.shape[1] != keys.shape[1]
        return scaled_dot_product_attention(
            queries, keys, values, is_causal=True, scale=scale, enable_gqa=grouped
        )


class Forked(NamedTuple):
    """The state after the event.

    slots: of the lanes that go on, None if there is none. logits: [vocabulary] after the last context token.
    before: slots held before the event, the same for every lane. failures: by index of the lane.
    """

    slots: slots.Slots | None
    logits: Tensor
    before: int
    failures: dict[int, LaneFailure]


def check(model: Model) -> None:
    """Refuse sliding-window and hybrid layers by name: they drop or blend slots on their own."""
    config = model.network.config
    kinds = set(getattr(config, "layer_types", None) or ()) - {"full_attention"}
    if getattr(config, "sliding_window", None) is not None:
        kinds.add("sliding_attention")
    if kinds:
        raise BadInput(
            f"model {model.name}: has layers of {', '.join(sorted(kinds))}; "
            "choose a model with full attention in every layer"
        )


def prefill(model: Model, context: Sequence[int], lanes: Sequence[Lane], problem: str, room: int) -> Forked:
    """Feed the context once, whatever the number of lanes, and fork every lane by its policy.

    Only this call refers to the keys and values of the whole context, so they are freed when it returns. A
    ValueError of a policy fails its own lane. room: tokens that a lane may append later.
    """
    network = model.network
    recorder = Recorder(tuple(dict.fromkeys(signal for lane in lanes for signal in lane.policy.needs)))
    token_ids = torch.tensor(context, device=network.device)
    positions = torch.arange(len(context), device=network.device)
    logits = network(
        input_ids=token_ids[None],
        position_ids=positions[None],
        use_cache=False,
        logits_to_keep=1,
        passenger=recorder,
    ).logits[0, -1]
    layers = network.config.num_hidden_layers
    if len(recorder.keys) != layers:
        raise BadInput(
            f"model {model.name}: bypasses transformers' attention interface; choose a model that uses it"
        )
    heads = recorder.keys[0].shape[0]

    keeps: list[Tensor] = []
    failures: dict[int, LaneFailure] = {}
    for index, lane in enumerate(lanes):
        view = View(
            token_ids=token_ids,
            layers=layers,
            kv_heads=heads,
            sentence_ends=model.sentence_ends,
            seed=sampling.key("view", problem, lane.seed, bits=64),
            signals={signal: tuple(recorder.signals[signal]) for signal in lane.policy.needs},
        )
        budget = len(context) if lane.budget is None else lane.budget
        try:
            keeps.append(lane.policy.keep(view, budget))
        except ValueError as refusal:
            failures[index] = LaneFailure(" ".join(str(refusal).split()))
    forked = slots.fork(recorder.keys, recorder.values, keeps, room) if keeps else None
    return Forked(forked, logits, layers * heads * len(context), failures)
