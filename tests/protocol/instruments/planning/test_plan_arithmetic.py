"""Seconds, bytes and lanes of an estimate, against counts by hand, a plain loop and what the engine holds."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers

import policies
from benchmarks.memory import account
from policies import Cadence
from protocol import engine
from protocol.engine import Lane, Prompt, Request
from protocol.instruments.planning import cost_model, shapes
from protocol.instruments.planning.cost_model import ArmSeconds, HostSeconds, LaneKind, Rates, Shape

NOTHING = HostSeconds(0.0, 0.0, 0.0, (0.0, 0.0), (0.0, 0.0), 0.0, 0.0, ArmSeconds())
ENDLESS = Rates(*[float("inf")] * 7, is_asynchronous=False, host=NOTHING)
SHAPE = Shape(
    layers=3, q_heads=4, kv_heads=2, head_dim=16, width=64, intermediate=96, vocabulary=97, weights=1000,
    linear=800, head=100, itemsize=4,
)  # fmt: skip


def kind(budget=None, interval=0, start=10, seed=0, capacity=64, evicts=False):
    return LaneKind("arm", seed, start, budget, interval, capacity, SHAPE.slot_bytes, 0, evicts)


@pytest.mark.parametrize(("budget", "start"), [(None, 7), (20, 12), (20, 20), (8, 8)])
@pytest.mark.parametrize("tokens", [1, 5, 18, 19, 40, 97])
def test_slots_and_events_of_a_lane_are_those_of_a_plain_loop(budget, start, tokens):
    interval, held, sizes, events = 6, start, [], 0
    for _ in range(tokens):
        sizes.append(held + 0.5)  # on average over the step
        held += 1
        if budget is not None and held == budget + interval:
            held, events = budget, events + 1
    lane = kind(budget, interval, start)
    assert lane.events(tokens) == events
    assert lane.held(tokens) == pytest.approx(sum(sizes) / tokens, rel=0.13)


@pytest.mark.parametrize("together", [1, 2, 3, 50])
def test_lanes_take_the_places_of_those_that_ended(together):
    lengths = [3, 1, 4, 1, 5, 9, 2, 6]
    rates = ENDLESS._replace(host=NOTHING._replace(forward=1.0, lane=(100.0, 0.0)))
    found = cost_model.decoding_cost(SHAPE, rates, [(kind(), 0, each) for each in lengths], together, samples=False)
    waiting, running, forwards = list(lengths), [], 0
    while waiting or running:
        while waiting and len(running) < together:
            running.append(waiting.pop(0))
        forwards += 1
        running = [left - 1 for left in running if left > 1]
    assert (found.forwards, found.lane_steps) == (forwards, sum(lengths))
    assert found.spent.total == pytest.approx(forwards + 100 * sum(lengths))


def test_each_part_of_a_step_counted_by_hand():
    lanes = [(kind(seed=0), 0, 10), (kind(seed=1), 0, 10), (kind(seed=0, capacity=80), 1, 10)]

    def of(**rates):
        return cost_model.decoding_cost(SHAPE, ENDLESS._replace(**rates), lanes, 3, samples=True).spent

    # 10 steps of 3 lanes: weights are read once a step, 4 bytes each; products are 2 x 900 a lane
    assert of(weights=4000.0).weights == pytest.approx(10)
    assert of(rows=5400.0).weights == pytest.approx(10)
    assert of(weights=4000.0, rows=540.0).weights == pytest.approx(100), "the larger of the two"
    # 15 slots a lane on average, 2 x 3 x 2 x 16 x 4 = 768 bytes each
    assert of(cache=768.0).slots == pytest.approx(10 * 3 * 15)
    # two capacities are two pools, three draws of (problem, seed)
    assert of(host=NOTHING._replace(pool=1.0)).host == pytest.approx(10 * 3 * 1)
    assert of(host=NOTHING._replace(noise=1.0)).sampling == pytest.approx(10 * 97 * 3)
    assert of(host=NOTHING._replace(logit=1.0)).sampling == pytest.approx(10 * 97 * 3)
    shared = [(kind(seed=0), 0, 10)] * 3
    same = cost_model.decoding_cost(SHAPE, ENDLESS._replace(host=NOTHING._replace(noise=1.0)), shared, 3, samples=True)
    assert same.spent.sampling == pytest.approx(10 * 97 * 1), "lanes of one problem and seed share the noise"


def test_a_host_beside_the_device_counts_only_for_what_the_device_does_not_hide():
    rates = ENDLESS._replace(weights=400.0, is_asynchronous=True, host=NOTHING._replace(forward=4.0))
    lanes = [(kind(), 0, 1)]
    assert cost_model.decoding_cost(SHAPE, rates, lanes, 1, samples=False).spent.total == pytest.approx(10)
    slow = rates._replace(host=NOTHING._replace(forward=14.0))
    assert cost_model.decoding_cost(SHAPE, slow, lanes, 1, samples=False).spent.total == pytest.approx(14)


def test_a_prompt_counted_by_hand():
    assert cost_model.prefill_seconds(SHAPE, ENDLESS._replace(linear=2 * (800 * 50 + 100)), 50, 0) == pytest.approx(1)
    pairs = sum(range(1, 51)) - 50 / 2  # of a query and a key, half of the diagonal
    flop = 3 * 4 * 2 * 2 * 16 * pairs
    assert cost_model.prefill_seconds(SHAPE, ENDLESS._replace(attention=flop), 50, 0) == pytest.approx(1)
    last = sum(range(41, 51)) - 10 / 2
    assert cost_model.prefill_seconds(SHAPE, ENDLESS._replace(watched=3 * 4 * last), 50, 10) == pytest.approx(1)


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


@pytest.mark.parametrize(("name", "interval"), HELD)
def test_what_fits_holds_what_the_engine_takes(name, interval):
    """The peak of a run, as the profiler counts it, is at most what the arithmetic says, for prompts and
    answers as long as they may be; and the slots are at least half of what it says of them.
    """
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
    needed = cost_model.memory_need(
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
    needed = cost_model.memory_need(SHAPE, 10, None, sizes, signals=0, watches=False, raw=False)
    slot = SHAPE.slot_bytes
    assert needed.lanes == (320 * slot, 160 * slot, 16 * slot, 16 * slot)
    two = needed.bytes(2)
    assert cost_model.lanes_that_fit(needed, two) == 2
    assert cost_model.lanes_that_fit(needed, two - 1) == 1
    assert cost_model.lanes_that_fit(needed, needed.bytes(4)) == 4
    assert cost_model.lanes_that_fit(needed, needed.weights) == 0


def test_known_shapes_are_read_by_the_arithmetic_alone():
    zeros = "0" * 40
    own = shapes.find_config(f"hf:deepseek-ai/DeepSeek-R1-Distill-Qwen-7B@{zeros}", Path("/nowhere"))
    found = shapes.shape_of(own.config, "bfloat16")
    assert found.weights == 7_615_616_512, "as the model's own index counts it"
    assert found.slot_bytes == 2 * 28 * 4 * 128 * 2
