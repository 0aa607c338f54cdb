"""Logits and slots that are not finite fail their lane, whatever its policy, and nobody else's."""

from dataclasses import replace

import pytest
import torch
from many_lanes import two_dozen_lanes
from sampled import sampled
from test_run_types import told
from tiny_networks import DEPTH, VOCABULARY, all_kept, answer, competing, drawn, lane, outside, tiny, words

import policies
from protocol import engine
from protocol.engine import LaneFailure, Outcome, Prompt, Request, sampling

BAD = 96  # a token that no prompt here holds unless it is put there
SHARED = ", in the prompt that all lanes share"


def spoiled(model, layer=1, how=torch.inf):
    """The model, with `how` in the output of a layer's MLP wherever the token BAD is fed."""
    seen = {}

    def embed(module, given, output):
        seen["bad"] = given[0] == BAD

    def spoil(module, given, output):
        return output.masked_fill(seen["bad"][..., None], how)

    model.network.model.embed_tokens.register_forward_hook(embed)
    model.network.model.layers[layer].mlp.register_forward_hook(spoil)
    return model


def clean(count, seed=0):
    return tuple(min(token, BAD - 1) for token in words(count, seed))


def with_bad(context, at):
    token_ids = list(clean(context))
    token_ids[at] = BAD
    return tuple(token_ids)


def every_arm(context, interval=None):
    """A lane of each policy of the catalogue, at a budget that they all can work with."""
    lanes = []
    for name in policies.names():
        policy = competing(policies.get(name))
        if policy.evicts and interval and not policy.prefill_only_signals:
            policy = replace(policy, cadence=replace(policy.cadence, interval=interval))
        lanes.append(engine.Lane(name, policy, context - 40 if policy.evicts else None, 0))
    return lanes


@pytest.mark.parametrize(
    ("dtype", "temperature", "query"), sampled([torch.float32, torch.bfloat16], [0.0, 0.7], [0, 3], of=4)
)
def test_a_prompt_that_is_not_finite_fails_the_lanes_of_every_arm_alike(dtype, temperature, query):
    """Also those of a policy that would have dropped the token."""
    context = 240
    model, lanes = spoiled(tiny(dtype=dtype, num_hidden_layers=DEPTH)), every_arm(context)
    bad = Request("bad", Prompt(with_bad(context, 100), clean(query, 1)), tuple(lanes))
    good = Request("good", Prompt(clean(context), clean(query, 1)), tuple(lanes))
    settings = {"max_new_tokens": 1, "temperature": temperature}  # none that may be BAD is fed
    failed, fine = (answers.outcomes for answers in engine.run(model, [bad, good], **settings).answers)
    assert set(failed) == {LaneFailure(f"logits: not finite at decode step 0{SHARED}")}
    assert all(isinstance(outcome, Outcome) for outcome in fine)


@pytest.mark.parametrize(
    ("dtype", "how"), sampled([torch.float32, torch.bfloat16], [torch.inf, -torch.inf, torch.nan], of=2)
)
def test_a_query_that_is_not_finite_fails_the_lanes_of_every_arm_at_step_0(dtype, how):
    model, lanes = spoiled(tiny(dtype=dtype, num_hidden_layers=DEPTH), how=how), every_arm(240, interval=1)
    prompt = Prompt(clean(240), (5, BAD, 6))
    # With an event right after the query the policies would otherwise look at it first, each in its way.
    for first_event in (0, 1):
        outcomes = answer(model, prompt, lanes, max_new_tokens=3, first_event=first_event)
        assert set(outcomes) == {LaneFailure("logits: not finite at decode step 0")}


def chosen(monkeypatch, token, at):
    """From now on every lane chooses `token` at step `at`."""
    choose = sampling.choose

    def forced(logits, draws, *how):
        tokens = choose(logits, draws, *how)
        return [token if draw.step == at else one for draw, one in zip(draws, tokens, strict=True)]

    monkeypatch.setattr(sampling, "choose", forced)


@pytest.mark.parametrize("interval", sampled([None, 1, 2], of=2))
def test_a_token_that_is_not_finite_fails_every_arm_at_its_step(monkeypatch, interval):
    chosen(monkeypatch, BAD, at=2)
    model = spoiled(tiny(num_hidden_layers=DEPTH))
    outcomes = answer(model, Prompt(clean(240), ()), every_arm(240, interval), max_new_tokens=9)
    assert set(outcomes) == {LaneFailure("logits: not finite at decode step 3")}


def test_the_other_lanes_of_the_batch_go_on_untouched(monkeypatch):
    """In pools of their own and in the failed lane's, after it in its place and beside it."""
    model, lanes = tiny(), two_dozen_lanes()
    requests = [Request(f"p{n}", Prompt(clean(40, n), clean(3, 9)), tuple(lanes)) for n in range(3)]
    choose, failing = sampling.choose, {"p0": 1, "p2": 4}

    def forced(logits, draws, *how):
        tokens = choose(logits, draws, *how)
        return [
            BAD if draw.step == failing.get(draw.problem) else min(token, BAD - 1)
            for draw, token in zip(draws, tokens, strict=True)
        ]

    monkeypatch.setattr(sampling, "choose", forced)
    for most in (2, 7, 80):
        plain = engine.run(model, requests, max_new_tokens=8, max_concurrent=most).answers[1].outcomes
        spoiled_run = engine.run(spoiled(tiny()), requests, max_new_tokens=8, max_concurrent=most)
        first, middle, last = (answers.outcomes for answers in spoiled_run.answers)
        assert set(first) == {LaneFailure("logits: not finite at decode step 2")}
        assert set(last) == {LaneFailure("logits: not finite at decode step 5")}
        assert list(map(told, middle)) == list(map(told, plain))


def test_the_place_of_a_failed_lane_is_clean_for_the_next():
    """All share a pool of 48 slots. The short lane holds less than those beside it, whose rows it is read
    with, and a NaN behind its last slot would spoil its sums although it is masked.
    """
    model = spoiled(tiny())
    long = Request("long", Prompt(clean(40), ()), (lane(all_kept()),) * 3)
    bad = Request("bad", Prompt(clean(37), (BAD,)), (lane(all_kept()),))
    short = Request("short", Prompt(clean(33, 1), (4,)), (lane(all_kept()),))
    (alone,) = engine.run(model, [short], max_new_tokens=8).answers[0].outcomes
    ran = engine.run(model, [long, bad, short], max_new_tokens=8, max_concurrent=4)
    *_, (failed,), (after,) = (answers.outcomes for answers in ran.answers)
    assert failed == LaneFailure("logits: not finite at decode step 0")
    assert after.token_ids == alone.token_ids


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize(("how", "fails"), [("nan", True), ("inf", True), ("nothing", True), ("banned", False)])
def test_logits_fail_a_lane_where_no_token_is_the_likeliest(how, fails, temperature):
    """-inf for some tokens is a ban, and leaves others to choose."""
    model = tiny()

    def change(module, given, output):
        output = output.clone()
        if how == "nothing":
            output[...] = -torch.inf
        elif how == "banned":
            output[..., : VOCABULARY // 2] = -torch.inf
        else:
            output[..., 50] = float(how)
        return output

    model.network.lm_head.register_forward_hook(change)
    for query in (0, 2):
        lanes = [lane(all_kept()), lane(drawn(), 20)]
        outcomes = answer(model, outside(30, query), lanes, max_new_tokens=4, temperature=temperature)
        for outcome in outcomes:
            if fails:
                assert outcome.reason.startswith("logits: not finite at decode step 0")
            else:
                assert min(outcome.token_ids) >= VOCABULARY // 2


@pytest.mark.parametrize("part", ["k_proj", "v_proj"])
def test_a_slot_that_is_not_finite_fails_all_lanes_although_the_last_logits_are(part):
    """The last layer's slot of a token that the last one does not see: nothing else has read it yet."""
    model = tiny()

    def spoil(module, given, output):
        output = output.clone()
        output[0, 3, :] = -torch.inf if part == "k_proj" else torch.inf
        return output

    def unseen(module, given, output):
        return output.nan_to_num(0, 0, 0)

    getattr(model.network.model.layers[-1].self_attn, part).register_forward_hook(spoil)
    model.network.model.layers[-1].self_attn.o_proj.register_forward_hook(unseen)
    lanes = [lane(all_kept()), lane(drawn(), 20), lane(policies.get("streaming"), 8)]
    outcomes = answer(model, outside(30), lanes, max_new_tokens=4)
    assert set(outcomes) == {LaneFailure(f"keys and values: not finite in layer 2{SHARED}")}
