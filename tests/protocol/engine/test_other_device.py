"""Runs on a device that is not the CPU, pretended: prompts, steps and events of all policies mix none."""

from dataclasses import replace

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
