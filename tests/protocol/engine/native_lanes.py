"""Lanes of the catalogue for the native kernel, and what they make."""

from dataclasses import replace

import torch
from tiny_networks import DEPTH, competing, tiny

import policies
from policies import Verbatim
from protocol.engine import Lane, Outcome

BUDGET = 200
"""Above what any policy protects."""
NATIVE_FAMILIES = ("Llama", "Qwen2", "Qwen3")


def network(family, width=32, dtype=torch.float32, **changes):
    """A small network that the kernel supports; Qwen2 has biases, Qwen3 norms of heads."""
    biased = {"attention_bias": True, "mlp_bias": True} if family == "Llama" else {}
    sizes = {"hidden_size": 64, "head_dim": width, "num_hidden_layers": DEPTH}
    model = tiny(family, dtype, **{**sizes, **biased, **changes})
    with torch.random.fork_rng():
        torch.manual_seed(5)
        for name, parameter in model.network.named_parameters():
            if "norm" in name or name.endswith("bias"):  # which are drawn as ones and zeros
                parameter.copy_(parameter + 0.2 * torch.randn(parameter.shape, dtype=dtype))
    return model


def catalogue(interval=4):
    """A lane of each policy whose slots the kernel reads, with events while it decodes where the policy can, and
    seeds that tell them apart.
    """
    lanes = []
    for seed, name in enumerate(policies.names()):
        policy = competing(policies.get(name))
        if not isinstance(policy.state, Verbatim):
            continue
        if policy.evicts and policy.cadence.interval is None and not policy.prefill_only_signals:
            policy = replace(policy, cadence=replace(policy.cadence, interval=interval))
        lanes.append(Lane(name, policy, BUDGET if policy.evicts else None, seed))
    return lanes


def made(outcome):
    """All of an outcome that a batch must not change."""
    assert isinstance(outcome, Outcome), outcome
    return outcome._replace(joined=0, seconds=0.0)
