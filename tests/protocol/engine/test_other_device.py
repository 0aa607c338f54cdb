"""Runs on a device that is not the CPU, pretended: prompts, steps and events of all policies mix none."""

from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import pretended_cuda as cuda
import pytest
import torch
from pretended_cuda import Mixed, OnDevice, pretended
from tiny_networks import DEPTH, competing, lane, outside, tiny

import policies
from policies import Cadence
from protocol import engine
from protocol.engine import Outcome, Request


@pytest.fixture(scope="module")
def model():
    return cuda.moved(tiny("Llama", torch.float32, num_hidden_layers=DEPTH))


def test_mixing_is_refused_as_cuda_refuses_it():
    there, here = OnDevice(torch.ones(3)), torch.ones(3)
    with pretended():
        assert (there + there).device.type == "cuda"
        assert (there * 2.0 + torch.tensor(1.0)).tolist() == [3.0] * 3, "numbers of no axis may lie anywhere"
        assert there.cpu().device.type == "cpu"
        assert torch.arange(3, device=there.device)[torch.tensor([2])].tolist() == [2]
        for act in (
            lambda: there + here,
            lambda: here[there > 0],
            lambda: torch.where(here > 0, there, there),
            lambda: there.cumsum(-1),
            lambda: there.numpy(),
        ):
            with pytest.raises(Mixed):
                act()


SOME = ("snapkv", "crystal-kv", "defensivekv")


def cases(names):
    """With events while decoding where a policy has any."""
    for name in names:
        policy = competing(policies.get(name))
        if policy.evicts and not policy.prefill_only_signals:
            policy = replace(policy, cadence=replace(policy.cadence, interval=8))
        yield name, policy


@pytest.mark.parametrize(
    "names", [SOME, pytest.param(tuple(policies.names()), marks=pytest.mark.soak)], ids=["some", "all"]
)
def test_no_policy_mixes_devices_or_asks_for_what_cuda_cannot_repeat(model, names):
    faults = {}
    for name, policy in cases(names):
        budget = 184 if policy.evicts else None  # above what any policy protects
        request = Request("p", outside(200, 5), (lane(policy, budget), lane(policy, budget, seed=1)))
        with pretended():
            ran = engine.run(model, [request], max_new_tokens=10, temperature=0.6, max_concurrent=2)
        for outcome in ran.answers[0].outcomes:
            if not isinstance(outcome, Outcome):
                faults[name] = outcome.reason
    assert faults == {}


def test_the_pretended_device_computes_what_the_cpu_does(model):
    plain = tiny("Llama", torch.float32, num_hidden_layers=DEPTH)
    policy = replace(policies.get("snapkv"), cadence=Cadence(interval=8))
    request = Request("p", outside(80, 5), (lane(policy, 48),))
    settings = {"max_new_tokens": 20, "temperature": 0.6, "max_concurrent": 1}
    with pretended():
        ran = engine.run(model, [request], **settings)
    expected = engine.run(plain, [request], **settings)
    assert ran.answers[0].outcomes[0].token_ids == expected.answers[0].outcomes[0].token_ids


LANES = 3
OPERATIONS = 200
"""Of a step of the engine beside the network, at most: 4 layers, 3 lanes. Signals that fold every token need 2 to 35
for each lane."""


class StepTraffic(NamedTuple):
    """What a step without events asks of the device, beside the operations of the network."""

    operations: int
    waits: int
    copies: int


def traffic_of_steps(model, names, temperature=0.6, interval=100):
    lanes = []
    for name in names:
        policy = competing(policies.get(name))
        if policy.evicts and not policy.prefill_only_signals:
            policy = replace(policy, cadence=replace(policy.cadence, interval=interval))
        lanes += [lane(policy, 184 if policy.evicts else None, seed) for seed in range(LANES)]
    marks, ids = [], OnDevice(torch.zeros(2, 1, dtype=torch.int64))
    with pretended() as traffic:
        with torch.no_grad():
            model.network(input_ids=ids, position_ids=ids, use_cache=False, logits_to_keep=1)
        alone = len(traffic.operations)

        def note(doing):
            marks.append((doing.phase, len(traffic.operations), len(traffic.waits), len(traffic.copies)))

        request = Request("p", outside(200, 5), tuple(lanes))
        settings = {"max_new_tokens": 11, "temperature": temperature, "max_concurrent": len(lanes)}
        engine.run(model, [request], report=note, **settings)
    # The first step uploads where the lanes lie, in the last one they leave.
    steps = [(before, after) for before, after in pairwise(marks) if before[0] == after[0] == "decoding"][:-1]
    assert len(steps) == 8
    return [StepTraffic(now[1] - then[1] - alone, now[2] - then[2], now[3] - then[3]) for then, now in steps]


FEW = (("h2o",), ("ada-snapkv",), ("epikv",), ("full", "snapkv", "kvzip"))


@pytest.mark.parametrize(
    "batches", [FEW, pytest.param([(name,) for name in policies.names()], marks=pytest.mark.soak)], ids=["few", "every"]
)
def test_a_step_without_events_waits_once_and_copies_once(model, batches):
    """The wait reads the next tokens; the copy brings tokens, positions and keys of the noise. Signals of two families
    read sizes or sums for each lane.
    """
    for names in batches:
        reads = 4 if names[0].startswith("crystal") else 0
        if names[0].startswith("crystal-kv"):
            reads = 2
        copies = 1 + LANES if reads == 2 else 1
        for step in traffic_of_steps(model, names):
            assert step.operations <= OPERATIONS, (names, step)
            assert step.waits <= 1 + reads * LANES, (names, step)
            assert step.copies <= copies, (names, step)


def test_a_greedy_step_launches_little_beside_the_network(model):
    for step in traffic_of_steps(model, ("full",), temperature=0.0):
        assert step == (7, 1, 1), "one more slot for each; greedy: maximum, is it finite, where, choice"


def test_an_event_of_several_lanes_waits_a_few_times_and_once_more_for_each(model):
    """Most waits are checks of what the policy answered. The lanes leave their pool, which asks each for its counts."""
    for name in ("snapkv", "h2o"):
        most = max(step.waits for step in traffic_of_steps(model, (name,), interval=5))
        assert 1 < most <= 5 + LANES, name
