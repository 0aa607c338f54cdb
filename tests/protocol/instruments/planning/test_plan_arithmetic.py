"""Seconds, bytes and lanes of an estimate, against counts by hand, a plain loop and what the engine holds."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers
from looped import looped
from sampled import sampled

import policies
from benchmarks.memory import account
from policies import Cadence
from protocol import engine
from protocol.engine import Lane, Prompt, Request
from protocol.instruments.planning import roofline, shapes
from protocol.instruments.planning.roofline import LaneKind, Rates, Shape

HOST = dict.fromkeys(("layer", "lane", "join", "event", "logit", "noise"), 0.0)
ENDLESS = Rates(*[float("inf")] * 3, is_asynchronous=False, **HOST)
SHAPE = Shape(
    layers=3, q_heads=4, kv_heads=2, head_dim=16, width=64, intermediate=96, vocabulary=97, weights=1000,
    linear=800, head=100, itemsize=4,
)  # fmt: skip


def kind(budget=None, interval=0, start=10, seed=0, capacity=64, evicts=False):
    return LaneKind("arm", seed, start, budget, interval, capacity, SHAPE.slot_bytes, 0, evicts)


@looped(("budget", "start"), [(None, 7), (20, 12), (20, 20), (8, 8)])
@looped("tokens", [1, 5, 18, 19, 40, 97])
def test_slots_and_events_of_a_lane_are_those_of_a_plain_loop(budget, start, tokens):
    interval, held, sizes, events = 6, start, [], 0
    for _ in range(tokens):
        sizes.append(held + 0.5)  # on average over the step
        held += 1
        if budget is not None and held == budget + interval:
            held, events = budget, events + 1
    lane = kind(budget, interval, start)
    assert lane.count_events(tokens) == events
    assert lane.mean_slots(tokens) == pytest.approx(sum(sizes) / tokens, rel=0.13)


@looped("together", [1, 2, 3, 50])
def test_lanes_take_the_places_of_those_that_ended(together):
    """As many steps as a plain loop takes, and at most those of one answer fewer."""
    lengths = [3, 1, 4, 1, 5, 9, 2, 6]
    rates = ENDLESS._replace(layer=1.0)
    spent = roofline.decoding_seconds(SHAPE, rates, [(kind(), each) for each in lengths], together, None)
    waiting, running, forwards = list(lengths), [], 0
    while waiting or running:
        while waiting and len(running) < together:
            running.append(waiting.pop(0))
        forwards += 1
        running = [left - 1 for left in running if left > 1]
    assert forwards - max(lengths) < spent.total / 3 <= forwards
    lanes = roofline.decoding_seconds(
        SHAPE, ENDLESS._replace(lane=1.0), [(kind(), each) for each in lengths], together, None
    )
    assert lanes.total == pytest.approx(3 * sum(lengths))


def test_each_part_of_a_step_counted_by_hand():
    lanes = [(kind(seed=0), 10), (kind(seed=1), 10), (kind(seed=0, capacity=80), 10)]

    def of(draws=1.0, **rates):
        return roofline.decoding_seconds(SHAPE, ENDLESS._replace(**rates), lanes, 3, draws)

    # 10 steps of 3 lanes: weights are read once a step, 4 bytes each; products are 2 x 900 a lane
    assert of(bandwidth=4000.0).weights == pytest.approx(10)
    assert of(flops=5400.0).weights == pytest.approx(10)
    assert of(bandwidth=4000.0, flops=540.0).weights == pytest.approx(110), "one after the other on a CPU"
    device = {"bandwidth": 4000.0, "flops": 540.0, "is_asynchronous": True}
    assert of(**device).weights == pytest.approx(100), "the larger of the two on an accelerator"
    # 15 slots a lane on average, 2 x 3 x 2 x 16 x 4 = 768 bytes each, moved twice
    assert of(bandwidth=768.0).slots == pytest.approx(2 * 10 * 3 * 15)
    assert of(layer=1.0).host == pytest.approx(10 * 3)
    assert of(lane=1.0).host == pytest.approx(10 * 3 * 3)
    assert of(noise=1.0).sampling == pytest.approx(10 * 97 * 3)
    assert of(logit=1.0).sampling == pytest.approx(10 * 97 * 3)
    assert of(noise=1.0, draws=1 / 3).sampling == pytest.approx(10 * 97), "lanes of one problem and seed share it"
    assert of(noise=1.0, logit=1.0, draws=None).sampling == 0, "nothing is drawn at temperature 0"
    assert of(join=1.0).prompts == pytest.approx(3 * 3)
    evicting = [(kind(budget=8, interval=4, start=10), 10)]  # at 12, 16, 20 and so on: after 2, 6 and 10 tokens
    assert roofline.decoding_seconds(SHAPE, ENDLESS._replace(event=1.0), evicting, 1, None).events == 3 * 3


def test_a_host_beside_the_device_counts_only_for_what_the_device_does_not_hide():
    rates = ENDLESS._replace(bandwidth=400.0, is_asynchronous=True, layer=4.0 / 3)
    lanes = [(kind(start=0), 1)]
    slots = 2 * 0.5 * 768 / 400
    spent = roofline.decoding_seconds(SHAPE, rates, lanes, 1, None)
    assert spent.total == pytest.approx(10 + slots)
    slow = rates._replace(layer=(14.0 + slots) / 3)
    assert roofline.decoding_seconds(SHAPE, slow, lanes, 1, None).total == pytest.approx(14 + slots)


def test_a_prompt_counted_by_hand():
    pairs = sum(range(1, 51)) - 50 / 2  # of a query and a key, half of the diagonal
    attention = 3 * 4 * 2 * 2 * 16 * pairs
    rates = ENDLESS._replace(flops=2 * (800 * 50 + 100) + attention)
    assert roofline.prefill_seconds(SHAPE, rates, 50, 0) == pytest.approx(1)
    last = sum(range(41, 51)) - 10 / 2
    rates = ENDLESS._replace(bandwidth=4000.0)
    assert roofline.prefill_seconds(SHAPE, rates, 50, 10) == pytest.approx(1 + 4 * 8 * 3 * 4 * last / 4000)
    assert roofline.prefill_seconds(SHAPE, ENDLESS._replace(layer=1.0), 50, 0) == pytest.approx(3)


EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
CONFIGS = {
    "tied": {"model_type": "llama", "tie_word_embeddings": True},
    "mixture": {"model_type": "qwen3_moe", **EXPERTS},
}


@pytest.mark.parametrize("name", ["tied", "mixture"])
def test_the_shape_is_that_of_the_network_itself(name):
    config = transformers.AutoConfig.for_model(
        **CONFIGS[name], vocab_size=97, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=16,
    )  # fmt: skip
    found = shapes.shape_of(config, "float32")
    network = transformers.AutoModelForCausalLM.from_config(config)
    assert found.weights == sum(own.numel() for own in network.parameters())
    attention = 2 * (2 * 64 * 64 + 2 * 64 * 32)
    if name == "tied":
        assert (found.linear, found.head) == (attention + 2 * 3 * 64 * 96, 97 * 64)
    else:  # the router, and two of four experts
        assert found.linear == attention + 2 * (64 * 4 + 2 * 3 * 64 * 32)


HELD = [("full", None), ("snapkv", None), ("h2o", 16), ("snapkv", 16), ("r-kv", 16), ("ada-snapkv", 16)]


@pytest.mark.parametrize("held", sampled(HELD, of=2))
def test_what_fits_holds_what_the_engine_takes(held):
    """The peak of a run, as the profiler counts it, is at most what the arithmetic says, for prompts and
    answers as long as they may be; and the slots are at least half of what it says of them.
    """
    name, interval = held
    config = transformers.LlamaConfig(
        vocab_size=97, hidden_size=64, intermediate_size=96, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, bos_token_id=None, eos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    torch.manual_seed(0)
    network = transformers.LlamaForCausalLM(config).eval().requires_grad_(False)
    network.generation_config.eos_token_id = None
    model = Tiny("tiny", network)
    policy, context, new, count = policies.get(name), 150, 48, 6
    if interval is not None:
        policy = replace(policy, cadence=Cadence(interval=interval))
    budget = None if name == "full" else 80
    request = Request(
        "p",
        Prompt(tuple(range(90)) + tuple(range(60)), ()),
        tuple(Lane("lane", policy, budget, seed) for seed in range(count)),
    )
    runs = []
    taken = account(lambda: runs.append(engine.run(model, [request], max_new_tokens=new, max_concurrent=count)), "cpu")
    shape = shapes.shape_of(config, "float32")
    most = min(context, budget or context) + (new if interval is None else interval)
    capacity = -(-most // 16) * 16
    state = 2 * 4 * 4 * 4 * (context + capacity) + 4 * 4 * 64 * 16 * 4 + 8 * 4 * 2 * capacity
    lane = LaneKind("a", 0, 0, None, 0, capacity, shape.slot_bytes, state * (interval is not None), budget is not None)
    needed = roofline.memory_need(
        shape, context, None, [lane] * count, signals=2, watches=interval is not None, raw=False
    )
    assert taken.peak <= needed.bytes(count) - needed.weights
    assert runs[0].peak_bytes <= count * capacity * shape.slot_bytes <= 2 * runs[0].peak_bytes


class Tiny:
    stop_ids = frozenset()
    sentence_ends = frozenset({7})

    def __init__(self, name, network):
        self.name, self.network, self.statistics = name, network, {}

    def lines(self, token_ids, mark):
        return ()


def test_the_largest_lanes_are_the_ones_that_must_fit():
    sizes = [kind(capacity=slots) for slots in (16, 160, 16, 320)]
    needed = roofline.memory_need(SHAPE, 10, None, sizes, signals=0, watches=False, raw=False)
    slot = SHAPE.slot_bytes
    assert needed.lanes == (320 * slot, 160 * slot, 16 * slot, 16 * slot)
    two = needed.bytes(2)
    assert roofline.lanes_that_fit(needed, two) == 2
    assert roofline.lanes_that_fit(needed, two - 1) == 1
    assert roofline.lanes_that_fit(needed, needed.bytes(4)) == 4
    assert roofline.lanes_that_fit(needed, needed.weights) == 0


def test_known_shapes_are_read_by_the_arithmetic_alone():
    zeros = "0" * 40
    own = shapes.find_config(f"hf:deepseek-ai/DeepSeek-R1-Distill-Qwen-7B@{zeros}", Path("/nowhere"))
    found = shapes.shape_of(own.config, "bfloat16")
    assert found.weights == 7_615_616_512, "as the model's own index counts it"
    assert found.slot_bytes == 2 * 28 * 4 * 128 * 2
