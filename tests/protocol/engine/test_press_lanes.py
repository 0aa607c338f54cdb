"""A lane whose slots another code left: what is there is seen, what is hidden is held and not seen.

The presses here are drawn by a seed and need no kvpress; tests/parity runs those of kvpress.
"""

from dataclasses import dataclass

import pytest
import torch
from plain_forward import plain_forward
from tiny_networks import DIM, HEADS, KV_HEADS, LAYERS, Restless, answer, lane, noted, outside, tiny
from torch import Tensor
from transformers import DynamicCache

import policies
from protocol import engine
from protocol.engine.sampling import Draw
from protocol.presses import pressed
from protocol.presses.pressed import AsThePress, LanePrefill, Pressed

PART = AsThePress()
PARTS = dict.fromkeys(("scoring", "selection", "routing", "state", "protect"), PART)
NEW = 6


@dataclass(frozen=True)
class Leaves(Pressed):
    """Leaves `counts` slots of each layer, drawn; or all of them, of which it hides all but so many."""

    counts: tuple[int, ...] = (9, 20, 4)
    hides: bool = False
    draw: int = 0
    behind: int = 0

    def drawn(self, n: int) -> Tensor:
        """What stays, bool [layer, kv_head, n]."""
        random = torch.Generator().manual_seed(self.draw)
        order = torch.rand(LAYERS, KV_HEADS, n, generator=random).argsort(-1).argsort(-1)
        return order < torch.tensor(self.counts)[:, None, None]

    def prefill(self, network, context, budget, key):
        cache, stays = DynamicCache(), self.drawn(len(context))
        with pressed.native_attention(network, "sdpa"):
            output = network(torch.tensor([context]), past_key_values=cache, logits_to_keep=1)
        keys, values = [layer.keys[0] for layer in cache.layers], [layer.values[0] for layer in cache.layers]
        hidden = [~own if self.hides else None for own in stays]
        if not self.hides:
            keys, values = (
                [tensor[own].view(KV_HEADS, -1, DIM).flip(1) for tensor, own in zip(each, stays, strict=True)]
                for each in (keys, values)
            )
        return LanePrefill(keys, values, hidden, output.logits[0, -1], len(context) - self.behind, False)


def leaves(**settings) -> Leaves:
    return Leaves(**PARTS, **settings)


def expected(model, prompt, policy, outcome):
    """Logits of a plain forward of the whole text in which no later token sees what did not stay."""
    told = prompt.context + prompt.query
    fed = told + outcome.token_ids[:-1]
    total, n = len(fed), len(prompt.context)
    allowed = torch.ones(total, total).tril().bool().repeat(LAYERS, KV_HEADS, 1, 1)
    allowed[:, :, n:, :n] &= policy.drawn(n)[:, :, None]
    return plain_forward(model.network, fed, allowed).logits[len(told) - 1 :]


@pytest.mark.parametrize("query", [0, 5])
@pytest.mark.parametrize("hides", [False, True])
def test_a_lane_answers_from_what_a_press_left_visible(hides, query, logits_of):
    model, prompt, policy = tiny(), outside(40, query), leaves(hides=hides)
    (outcome,) = answer(model, prompt, [lane(policy, 11)], max_new_tokens=NEW)
    found = torch.stack([logits_of[Draw("p", 0, step)] for step in range(NEW)])
    torch.testing.assert_close(found, expected(model, prompt, policy, outcome), rtol=1e-9, atol=1e-9)


def test_what_is_hidden_is_held_and_what_was_left_is_counted():
    model, prompt = tiny(), outside(40)
    lanes = [lane(leaves(hides=hides), 11) for hides in (False, True)]
    dropped, hidden = answer(model, prompt, lanes, max_new_tokens=NEW)
    few = KV_HEADS * (9 + 20 + 4)
    assert dropped.events == ((0, 40 * HEADS, few),)
    assert hidden.events == ((0, 40 * HEADS, 40 * HEADS),)
    assert dropped.slots == tuple(few + HEADS * step for step in range(NEW))
    assert hidden.slots == tuple(HEADS * (40 + step) for step in range(NEW))
    assert dropped.granted == hidden.granted == (11,)
    assert not dropped.state_bytes
    assert min(hidden.allocated) > max(dropped.allocated)


def test_a_press_that_leaves_all_gives_the_text_of_the_full_cache():
    model, prompt = tiny(), outside(40, 3)
    whole = leaves(counts=(40, 40, 40))
    one, other = answer(model, prompt, [lane(whole, 40), lane(policies.get("full"))], max_new_tokens=12)
    assert one.token_ids == other.token_ids


def test_lanes_that_come_and_go_see_their_own_slots(logits_of):
    """More lanes than places: who comes later is given the place of one whose slots were hidden."""
    model = tiny(stop=(3, 11, 40, 41, 60, 61, 77))
    requests = [
        engine.Request(
            f"p{number}",
            outside(30 + 9 * (number % 2), 2, seed=number),
            tuple(engine.Lane(f"{draw}", leaves(hides=True, draw=draw), 8, draw) for draw in range(4)),
        )
        for number in range(6)
    ]
    ran = engine.run(model, requests, max_new_tokens=20, max_concurrent=5)
    stopped = 0
    for request, answers in zip(requests, ran.answers, strict=True):
        for given, outcome in zip(request.lanes, answers.outcomes, strict=True):
            stopped += outcome.stop == "eos"
            if not outcome.token_ids:
                continue
            wanted = expected(model, request.prompt, given.policy, outcome)
            for step in range(len(outcome.token_ids)):
                found = logits_of[Draw(request.problem, given.seed, step)]
                torch.testing.assert_close(found, wanted[step], rtol=1e-9, atol=1e-9)
    assert 6 < stopped < 24


def test_slots_that_were_numbered_anew_are_followed_by_the_next_number():
    """Positions matter by their differences alone: a lane that counts from 7 less sees its prompt closer."""
    model, prompt = tiny(), outside(40, 3)
    same, closer = (
        answer(model, prompt, [lane(leaves(counts=(40, 40, 40), behind=behind), 40)], max_new_tokens=12)[0]
        for behind in (0, 7)
    )
    assert same.token_ids != closer.token_ids
    assert same.slots == closer.slots


def test_what_a_press_refuses_and_what_is_not_finite_fail_its_lane_alone():
    class Refusing(Leaves):
        def prefill(self, *given):
            raise ValueError("SnapKVPress: too\nshort")

    class Broken(Leaves):
        def prefill(self, *given):
            given = super().prefill(*given)
            given.values[1][0, 0, 0] = torch.nan
            return given

    lanes = [Refusing(**PARTS), Broken(**PARTS), leaves()]
    found = answer(tiny(), outside(40), [lane(policy, 11) for policy in lanes], max_new_tokens=NEW)
    assert found[0] == engine.LaneFailure("SnapKVPress: too short")
    assert found[1].reason == "keys and values: not finite in layer 1, in the slots that its press leaves"
    assert len(found[2].token_ids) == NEW


def test_a_press_runs_once_for_all_seeds_unless_it_draws():
    calls = []

    class Counted(Leaves):
        def prefill(self, network, context, budget, key):
            calls.append(key)
            return super().prefill(network, context, budget, key)._replace(used_rng=self.hides)

    for hides, times in ((False, 1), (True, 3)):
        calls.clear()
        policy = Counted(**PARTS, hides=hides)
        answer(tiny(), outside(40), [lane(policy, 11, seed) for seed in (1, 2, 3)], max_new_tokens=2)
        assert len(set(calls)) == times == len(calls)


def test_a_policy_that_reads_hidden_states_may_run_beside_a_press():
    """A policy that reads hidden states has hooks on the network, which a press runs by itself."""
    model, prompt = tiny(), outside(40)
    reading = noted(Restless())
    found = answer(model, prompt, [lane(leaves(), 30), lane(reading, 30)], max_new_tokens=2)
    assert all(isinstance(each, engine.Outcome) for each in found)


def test_the_network_is_as_it_was():
    network = tiny().network
    before = {name: set(vars(module)) | set(module._modules) for name, module in network.named_modules()}
    attention = network.config._attn_implementation
    with pressed.native_attention(network, "eager") as layers:
        assert network.config._attn_implementation == "eager"
        layers[0].rotary_emb = network.base_model.rotary_emb
        layers[1].masked_key_indices = ()
    after = {name: set(vars(module)) | set(module._modules) for name, module in network.named_modules()}
    assert after == before
    assert network.config._attn_implementation == attention


def test_without_a_question_the_first_token_is_chosen_from_what_the_press_computed():
    class Sure(Leaves):
        def prefill(self, *given):
            left = super().prefill(*given)
            return left._replace(logits=torch.nn.functional.one_hot(torch.tensor(17), 97).double())

    lanes = [lane(policies.get("full")), lane(Sure(**PARTS), 11), lane(leaves(hides=True), 11)]
    full, sure, plain = answer(tiny(), outside(40), lanes, max_new_tokens=1)
    assert sure.token_ids == (17,)
    assert full.token_ids == plain.token_ids != (17,)
