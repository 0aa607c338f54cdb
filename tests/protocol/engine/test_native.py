"""The native kernel: the numbers of the network, to the bit the same in any company and on any processor."""

import ctypes
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from native_lanes import BUDGET, NATIVE_FAMILIES, catalogue, made, network
from plain_forward import of_lane, plain_forward
from sampled import sampled
from tiny_networks import DEPTH, KV_HEADS, Adaptive, all_kept, answer, drawn, lane, outside, tiny, words
from torch.nn import Parameter
from torch.testing import assert_close

import policies
from policies import Cadence, PerHead, Policy, Protect, Scores
from policies.signals import AttentionSums, EveryLayer, group_mean
from protocol import engine
from protocol.engine import LaneFailure, Prompt, Request, batch_rows, sampling
from protocol.engine.native import library
from protocol.engine.native import network as native_network
from protocol.engine.native.network import NativeNetwork, NativeRows, obstacle_to_native
from protocol.engine.native_prefill import feed_prompt
from protocol.engine.observation import Observer, observe_forward
from protocol.engine.prefill import feed
from protocol.engine.slots import Pool
from protocol.formats import files
from protocol.formats.refusals import BadInput
from protocol.lock import closure

pytestmark = pytest.mark.skipif(not any(map(shutil.which, library.COMPILERS)), reason="needs a C++ compiler")
PROMPT = outside(215, 3)
SAMPLE = {"max_new_tokens": 14, "temperature": 0.7, "kernel": "native"}
GENERIC = ("-O1", "-std=c++17", "-ffp-contract=off", "-shared", "-fPIC")
"""A build without vector instructions, whose fused multiplications are those of the C library."""


def error_of(model, exact, lanes, prompt, logits_of):
    """The largest difference of a logit from one forward of the whole text in float64, with masks for what the lanes
    evicted.
    """
    outcomes = answer(model, prompt, lanes, max_new_tokens=12, kernel="native")
    largest = 0.0
    for one, outcome in zip(lanes, outcomes, strict=True):
        text = prompt.context + prompt.query + outcome.token_ids
        plain = plain_forward(exact.network, text, of_lane(one.policy, len(text), layers=4).allowed)
        for step in range(12):
            expected = plain.logits[prompt.tokens - 1 + step]
            largest = max(largest, float((logits_of["p", one.seed, step].double() - expected).abs().max()))
    return largest


@pytest.mark.parametrize(("family", "width"), sampled(NATIVE_FAMILIES, (32, 64, 128), of=3))
def test_logits_are_those_of_float64(family, width, logits_of):
    """Heads of equal and of unequal length, groups of one to five query heads, 1e-4 of logits of some tens."""
    heads = {32: (4, 2), 64: (10, 2), 128: (2, 2)}[width]
    changes = {"num_attention_heads": heads[0], "num_key_value_heads": heads[1], "intermediate_size": 1040}
    changes |= {"hidden_size": 80 if heads[0] == 10 else 64}  # a multiple of the heads
    model = network(family, width, **changes)
    exact = model._replace(network=network(family, width, torch.float64, **changes).network)
    exact.network.load_state_dict(model.network.state_dict())
    uneven = lane(drawn(4, Adaptive(), Cadence(interval=3)), 12, seed=2)
    lanes = (lane(all_kept()), lane(drawn(2, cadence=Cadence(interval=4)), 18, seed=1), uneven)
    assert error_of(model, exact, lanes, outside(41, 3), logits_of) < 1e-4


def test_rows_that_pass_in_several_blocks_have_the_logits_of_float64(logits_of):
    """A question of 150 tokens for two lanes: 126, 126 and 48 rows, of which the second block has some of both."""
    model, exact = network("Qwen3"), network("Qwen3", dtype=torch.float64)
    exact.network.load_state_dict(model.network.state_dict())
    lanes = (lane(all_kept()), lane(drawn(2, cadence=Cadence(interval=4)), 60, seed=1))
    assert error_of(model, exact, lanes, outside(70, 150), logits_of) < 1e-4


TIES = {"Qwen3": {"knorm"}}
"""Policies that keep another slot where rounding decides: the norms of keys 48 and 131 of a head, which is normalised,
are 6.2828002 and 6.2827997 under one kernel and equal under the other.
"""


@pytest.mark.parametrize(
    "family", [NATIVE_FAMILIES[0], *(pytest.param(f, marks=pytest.mark.soak) for f in NATIVE_FAMILIES[1:])]
)
def test_every_policy_keeps_what_it_keeps_under_the_other_kernel(family):
    """Their texts are those of the network's own forward, too: no lane here is near a tie."""
    model, lanes = network(family), catalogue()
    eager, native = (
        answer(model, PROMPT, lanes, max_new_tokens=7, temperature=0.7, kernel=kernel) for kernel in (None, "native")
    )
    different = {one.key for one, a, b in zip(lanes, eager, native, strict=True) if made(a) != made(b)}
    assert different <= TIES.get(family, set())


def test_a_layer_that_a_small_budget_leaves_without_a_slot_decodes_on(monkeypatch):
    fill, kept = Pool.fill, []

    def note(pool, index, layer, cached, mask, counts, hidden=None):
        kept.append(int(counts.sum()))
        fill(pool, index, layer, cached, mask, counts, hidden)

    monkeypatch.setattr(Pool, "fill", note)
    model, names = network("Llama"), ("pyramid-1d", "pyramid-1d_div", "ada-1d", "ada-1d_div")
    lanes = [
        one._replace(key=f"{one.key} {budget}", budget=budget)
        for one in catalogue()
        for budget in (1, 5)
        if one.key in names
    ]
    eager, native = (answer(model, PROMPT, lanes, max_new_tokens=7, kernel=kernel) for kernel in (None, "native"))
    assert list(map(made, eager)) == list(map(made, native))
    for one, outcome in zip(lanes, eager, strict=True):
        assert {after for _, _, after in outcome.events} == {one.budget * DEPTH * KV_HEADS}
    assert 0 in kept


def alone(model, one, prompt, **settings):
    (outcome,) = answer(model, prompt, [one], **settings)
    return made(outcome)


@pytest.mark.parametrize(
    ("family", "whole"),
    [("Qwen3", False), *(pytest.param(family, True, marks=pytest.mark.soak) for family in NATIVE_FAMILIES)],
)
def test_a_lane_is_the_same_to_the_bit_alone_and_in_company(family, whole, logits_of):
    """Of any size and order, and whichever arms share its prompt."""
    model, lanes = network(family), catalogue()[:: 1 if whole else 3]
    chosen = lanes if whole else lanes[::4]
    expected, logits = {}, {}
    for one in chosen:
        expected[one.key] = alone(model, one, PROMPT, **SAMPLE)
        logits |= {place: logits_of.pop(place) for place in list(logits_of)}
    mixed = random.Random(0).sample(lanes, len(lanes))
    for at_once in (7, 60):
        outcomes = answer(model, PROMPT, mixed, max_concurrent=at_once, **SAMPLE)
        by_key = {one.key: made(outcome) for one, outcome in zip(mixed, outcomes, strict=True)}
        assert [key for key in expected if by_key[key] != expected[key]] == []
        assert [place for place, row in logits.items() if not torch.equal(row, logits_of[place])] == []


@pytest.mark.soak
@pytest.mark.parametrize("family", NATIVE_FAMILIES)
def test_a_thousand_random_lanes_in_companies_of_seven_to_504(family):
    model, draw, lanes = network(family), random.Random(family), catalogue()
    problems = [Prompt(words(length, length), words(draw.choice((0, 3, 5)), length)) for length in range(210, 235)]
    requests = [
        Request(
            f"p{number}",
            prompt,
            tuple(
                one._replace(budget=one.budget and BUDGET + draw.randrange(8), seed=draw.randrange(1000))
                for one in draw.choices(lanes, k=40)
            ),
        )
        for number, prompt in enumerate(problems)
    ]
    settings = SAMPLE | {"max_new_tokens": 8}
    expected = [
        [alone(model, one, request.prompt, problem=request.problem, **settings) for one in request.lanes]
        for request in requests
    ]
    for at_once in (7, 60, 126, 504):
        ran = engine.run(model, requests, max_concurrent=at_once, **settings)
        assert [[made(outcome) for outcome in answers.outcomes] for answers in ran.answers] == expected


@pytest.mark.parametrize(
    ("temperature", "every"),
    [(0.7, 6), *(pytest.param(value, 1, marks=pytest.mark.soak) for value in (0.0, 0.7))],
)
def test_lanes_of_a_problem_are_computed_once_until_they_part_and_are_what_they_were(temperature, every, monkeypatch):
    """Of every policy, two seeds each, and budgets at which some keep all of the prompt, some for a while."""
    model, computed, summed = network("Qwen3"), [], []
    lanes = [
        one._replace(key=f"{one.key} {seed} {more}", seed=seed, budget=one.budget and BUDGET + more)
        for one in catalogue()[::every]
        for seed, more in ((3, 0), (3, 21), (4, 40))
    ]
    small = [lane(drawn(number, cadence=Cadence(interval=4)), 20, seed=3) for number in range(4)]
    prompts = [Prompt(words(212, 1), words(3, 2)), Prompt(words(216, 3), ())]
    requests = [Request(f"p{number}", prompt, (*small, *lanes[number::2])) for number, prompt in enumerate(prompts)]
    forward, find, choose = NativeNetwork.forward, batch_rows.find_equal_lanes, sampling.choose
    find_sums = batch_rows.find_equal_sums
    logits, noted, shares = {}, [], True

    def count(self, rows, **how):
        computed.append(len(rows.tokens))
        return forward(self, rows, **how)

    def note(rows, **how):
        owners, places = find(rows, **how)
        chosen = owners if shares else np.arange(len(rows))
        noted.append(([(rows[at].request.problem, rows[at].number, rows[at].n_fed) for at in chosen], owners, places))
        return (owners, places) if shares else (chosen, chosen)

    def compare(found, *how):
        if noted:  # else the first token after a prompt without a question
            lanes, owners, places = noted.pop()
            for lane, row in zip(lanes, found, strict=True):
                assert torch.equal(logits.setdefault(lane, row.clone()), row)
            assert shares or torch.equal(found, found[owners][places])
        return choose(found, *how)

    def count_sums(rows, places):
        found = find_sums(rows, places)
        summed.append(len(found))
        return found

    monkeypatch.setattr(NativeNetwork, "forward", count)
    monkeypatch.setattr(batch_rows, "find_equal_lanes", note)
    monkeypatch.setattr(batch_rows, "find_equal_sums", count_sums)
    monkeypatch.setattr(sampling, "choose", compare)

    def run():
        computed.clear()
        summed.clear()
        ran = engine.run(model, requests, max_concurrent=90, **SAMPLE | {"temperature": temperature})
        return [list(map(made, answers.outcomes)) for answers in ran.answers], sum(computed), sum(summed)

    once, rows, taken = run()
    shares = False
    each, all_rows, none_taken = run()
    assert once == each
    assert rows < 0.9 * all_rows
    assert (taken > 0, none_taken) == (True, 0)


@pytest.mark.parametrize("name", ["attn-x-hs", "segment-hs"])
def test_a_lane_that_takes_the_sums_of_another_has_its_bytes_of_state(name):
    """Of policies that fold attention and hidden states: seeds of one greedy text, at every length up to an event."""
    model, (one,) = network("Qwen3"), [lane for lane in catalogue() if lane.key == name]
    lanes = [one._replace(budget=300, seed=seed) for seed in (0, 1)]
    for tokens in range(3, 12):
        first, second = answer(model, outside(205, 0), lanes, max_new_tokens=tokens, kernel="native")
        assert made(first) == made(second)


class Impostor(EveryLayer):
    """A signal of another project that equals one of ours and writes into its state."""

    window = None

    def __hash__(self):
        return hash(AttentionSums())

    def __eq__(self, other):
        return isinstance(other, AttentionSums | Impostor) and other.window is None

    def attend(self, rows, before):
        sums = AttentionSums().attend(rows, before)
        if before is not None:
            before.uniform_(0, 100)
        return sums


class Misled:
    needs = frozenset({Impostor()})

    def score(self, view):
        return Scores(torch.stack([group_mean(each, view.kv_heads) for each in view.signals[AttentionSums()]]))


@pytest.mark.parametrize("kernel", ["eager", "native"])
def test_a_signal_of_others_that_equals_ours_shares_no_state_with_it(kernel):
    model = network("Qwen3")
    first, last = (
        lane(policies.get("h2o", cadence=Cadence(interval=4)), budget, seed=seed)
        for budget, seed in ((230, 3), (231, 5))
    )
    own = lane(Policy(Misled(), routing=PerHead(), cadence=Cadence(interval=2), protect=Protect(2, 3)), 230, seed=3)
    settings = {"max_new_tokens": 50, "temperature": 0.7, "kernel": kernel}
    (alone,) = answer(model, outside(215, 0), [last], **settings)
    assert made(answer(model, outside(215, 0), [first, own, last], **settings)[2]) == made(alone)
    assert len(alone.events) > 1


@pytest.mark.parametrize("threads", [2, 5])
def test_threads_share_each_step_and_change_no_number(logits_of, monkeypatch, threads):
    """More than there are panels of columns in the narrowest product, and rows in a lane."""
    model, lanes = network("Llama"), catalogue()[:6]
    first = [made(outcome) for outcome in answer(model, PROMPT, lanes, **SAMPLE)]
    logits, build = dict(logits_of), NativeNetwork.__init__

    def with_threads(self, *arguments):
        build(self, *arguments)
        self.threads = threads

    monkeypatch.setattr(NativeNetwork, "__init__", with_threads)  # torch's own stay at one, as they are registered
    monkeypatch.setattr(native_network, "MIN_THREAD_PRODUCTS", 1)
    running = {*sys._current_frames()}
    second = [made(outcome) for outcome in answer(model, PROMPT, lanes, **SAMPLE)]
    assert {*sys._current_frames()} == running  # own code may start none, so that none of ours may stay
    assert first == second
    assert all(torch.equal(row, logits_of[place]) for place, row in logits.items())


def assert_near(computed, expected):
    """Tensors in lists, tuples and dicts."""
    if isinstance(expected, torch.Tensor):
        assert_close(computed, expected, atol=1e-4, rtol=1e-4, check_dtype=False)
    elif isinstance(expected, dict):
        assert_near(list(computed.items()), list(expected.items()))
    elif isinstance(expected, list | tuple):
        assert len(computed) == len(expected)
        for pair in zip(computed, expected, strict=True):
            assert_near(*pair)
    else:
        assert computed == expected


class AttendedRow(Observer):
    """Attention of a token to itself alone, whose output depends on no other row; keeps what layers are given."""

    def __init__(self):
        self.seen = []

    def attend(self, layer, queries, keys, values, scale, sinks=None):
        self.seen.append((layer, keys, values))
        return (queries * keys.repeat_interleave(queries.shape[1] // keys.shape[1], 1)).tanh() * 3

    def see(self, layer, hidden):
        self.seen.append((layer, hidden[:, None]))


def of_chunks(observers):
    """What the layers of a prefill were given, over all of its chunks."""
    calls = zip(*(observer.seen for observer in observers), strict=True)
    return [
        (parts[0][0], *(torch.cat(tensors, 2) for tensors in zip(*(part[1:] for part in parts), strict=True)))
        for parts in calls
    ]


@pytest.mark.parametrize("family", sampled(NATIVE_FAMILIES, of=2))
def test_a_prefill_is_the_same_to_the_bit_in_any_chunks_and_threads(family, monkeypatch):
    monkeypatch.setattr(native_network, "MIN_THREAD_PRODUCTS", 1)
    model, tokens = network(family), torch.tensor(outside(300).context)
    native = NativeNetwork(model.network, 300)

    def prefill(chunk, threads):
        native.threads, observers, logits = threads, [], None
        for start in range(0, 300, chunk):
            observers.append(AttendedRow())
            logits = feed_prompt(native, tokens[start : start + chunk], start, observers[-1], hidden=(1, DEPTH - 1))
        return of_chunks(observers), logits

    whole, logits = prefill(300, 1)
    assert [entry[0] for entry in whole] == [0, 1, 1, *range(2, DEPTH), DEPTH - 1]
    assert not torch.equal(whole[2][1], whole[-1][1])  # of two layers, though the kernel overwrites its rows
    for chunk, threads in ((300, 3), (126, 2), (127, 1), (1, 2)):
        layers, last = prefill(chunk, threads)
        assert torch.equal(last, logits)
        for (_, *tensors), (_, *expected) in zip(layers, whole, strict=True):
            assert all(map(torch.equal, tensors, expected))


@pytest.mark.parametrize(("family", "chunk"), sampled(NATIVE_FAMILIES, (None, 150), of=3))
def test_a_prefill_is_that_of_float64(family, chunk):
    """Slots, logits, the signals that read attention and the output of a layer, and no module of the network runs."""
    model, context = network(family, 64), outside(300).context
    exact = network(family, 64, torch.float64)
    exact.network.load_state_dict(model.network.state_dict())
    signals = [AttentionSums(), AttentionSums(window=20), *policies.get("epikv").needs]
    with observe_forward(exact.network, range(DEPTH)), torch.no_grad():
        expected = feed(exact, context, signals, chunk=None)
    native = NativeNetwork(model.network, 300)
    with torch.no_grad(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.Module, "__call__", lambda *arguments: pytest.fail("a module ran"))
        fed = feed(model, context, signals, chunk=chunk, native=native)
    assert_near(fed, expected)


@pytest.mark.parametrize(("token", "start"), [(97, 0), (-1, 0), (3, 19), (3, -1)])
def test_a_prefill_outside_the_network_never_reaches_the_kernel(token, start):
    native = NativeNetwork(network("Llama").network, 20)
    native.library = None  # a call would end in an AttributeError
    with pytest.raises(ValueError, match=f"at {start}, of 97 and 20"):
        feed_prompt(native, torch.tensor([5, token]), start, AttendedRow())


BUILDS = {"AVX2": (library.INSTRUCTIONS["AVX2"], library.FLAGS), "none": ((), GENERIC)}


@pytest.mark.parametrize("build", ["AVX2", pytest.param("none", marks=pytest.mark.soak)])
@pytest.mark.parametrize(
    "width", [32, pytest.param(64, marks=pytest.mark.soak), pytest.param(128, marks=pytest.mark.soak)]
)
def test_every_vector_width_gives_the_same_bits(build, width, logits_of, monkeypatch):
    if torch.backends.cpu.get_cpu_capability() not in ("AVX512", "AVX2"):
        pytest.skip("builds for x86")
    model = network("Qwen3", width, num_attention_heads=6)
    lanes = [
        lane(drawn(1, Adaptive(), Cadence(interval=3)), 17),
        lane(policies.get("h2o", cadence=Cadence(4)), 30, seed=1),
    ]
    first = [made(outcome) for outcome in answer(model, outside(45, 3), lanes, max_new_tokens=12, kernel="native")]
    logits = dict(logits_of)
    other = ctypes.CDLL(str(library.build(*BUILDS[build])))
    monkeypatch.setattr(library, "load", lambda: other)
    second = [made(outcome) for outcome in answer(model, outside(45, 3), lanes, max_new_tokens=12, kernel="native")]
    assert first == second
    assert len(logits) == 24
    assert all(torch.equal(row, logits_of[place]) for place, row in logits.items())


def test_a_lane_that_is_not_finite_fails_and_leaves_the_others_alone():
    model = network("Llama")
    bad = outside(40).context[7]
    model.network.model.embed_tokens.weight[bad] = torch.nan
    model.network.lm_head.weight[bad] = 0
    clean = Prompt(tuple(token if token != bad else (bad + 1) % 97 for token in outside(40).context), ())
    query = Prompt(clean.context, (bad,))
    requests = [Request("clean", clean, (lane(all_kept()),)), Request("bad", query, (lane(all_kept()),))]
    ran = engine.run(model, requests, max_new_tokens=3, temperature=0.0, kernel="native")
    (fine,), (failed,) = (answers.outcomes for answers in ran.answers)
    assert made(fine) == alone(model, lane(all_kept()), clean, max_new_tokens=3, kernel="native")
    assert failed == LaneFailure("logits: not finite at decode step 0")


@pytest.mark.parametrize(
    ("family", "changes", "reason"),
    [
        ("Mistral", {}, "a model of type Llama, Qwen2 or Qwen3, but this one is mistral"),
        ("Llama", {"head_dim": 16}, "a head size of 32, 64 or 128, but the model's is 16"),
        ("Llama", {"hidden_act": "gelu"}, "the activation silu, but the model has gelu"),
        ("Llama", {"intermediate_size": 100}, "sizes that are multiples of 16, but the model has"),
        ("Qwen2", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}, "sliding windows"),
    ],
)
def test_a_model_that_the_kernel_lacks_is_refused_by_name(family, changes, reason):
    model = tiny(family, torch.float32, **{"head_dim": 32, **changes})
    assert reason in obstacle_to_native(model.network.config)
    with pytest.raises(BadInput, match=f'generation.kernel: "native" needs .*{reason}.*write "eager"'):
        answer(model, outside(20), [lane(all_kept())], max_new_tokens=2, kernel="native")


def test_what_only_the_other_kernel_does_is_refused_by_name():
    model = network("Llama")
    others = [policies.get("syn_mem"), *(policies.get("h2o", {"state": name}) for name in ("q8_0", "kivi-2", "quest"))]
    for policy in others:
        with pytest.raises(BadInput, match=r"computed and all read, but .* changes that .*lane a lane.*eager"):
            answer(model, outside(60), [lane(policy, 30)], max_new_tokens=2, kernel="native")
    half = model._replace(network=model.network.bfloat16())
    with pytest.raises(BadInput, match=r"dtype float32, but the model is on cpu in torch.bfloat16; write .eager."):
        answer(half, outside(20), [lane(all_kept())], max_new_tokens=2, kernel="native")
    with pytest.raises(BadInput, match="kernel: 'fast' given"):
        answer(model, outside(20), [lane(all_kept())], max_new_tokens=2, kernel="fast")


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"PATH": ""}, r"needs a C\+\+ compiler, but this machine has no c\+\+, g\+\+ or clang\+\+"),
        ({"CXX": "false"}, "could not be built by false"),
        ({"CXX": "no-such-compiler"}, "could not be built by no-such-compiler"),
        ({"CXX": "true"}, "could not be built by true: the compiler wrote no library"),
        ({"CXX": "c++ --no-such-option"}, r"could not be built by c\+\+"),
    ],
)
def test_a_machine_without_a_compiler_is_told_what_to_write(variables, reason, monkeypatch, tmp_path):
    monkeypatch.setenv("KV_PREREG_HOME", str(tmp_path))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(BadInput, match=reason + '.*; write kernel = "eager", the default') as refused:
        answer(network("Llama"), outside(20), [lane(all_kept())], max_new_tokens=2, kernel="native")
    assert "\n" not in str(refused.value)


def test_a_damaged_library_is_built_anew(monkeypatch, tmp_path):
    monkeypatch.setenv("KV_PREREG_HOME", str(tmp_path))
    monkeypatch.setenv("CXX", "ccache c++ -w")
    (tmp_path / "ccache").write_text('#!/bin/sh\nexec "$@"\n')
    (tmp_path / "ccache").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(library, "SOURCE", tmp_path / "small.cpp")
    library.SOURCE.write_text('extern "C" int forward() { return 3; }')
    path = library.build(())
    built = path.read_bytes()
    for damaged in (built[: len(built) // 2], b"", built[:-99] + bytes(99)):
        path.unlink()  # another process may have it loaded
        path.write_bytes(damaged)
        assert ctypes.CDLL(str(library.build(()))).forward() == 3
        assert not [entry for entry in path.parent.iterdir() if entry.is_dir()]
    once = path.stat().st_mtime_ns
    assert library.build(()) == path
    assert path.stat().st_mtime_ns == once


def shrink_head(net):
    net.lm_head.weight = Parameter(net.lm_head.weight[:90])


def grow_head(net):
    net.lm_head.weight = Parameter(torch.cat([net.lm_head.weight] * 2))


def halve_head(net):
    net.lm_head.weight = Parameter(net.lm_head.weight.bfloat16())


def shrink_embedding(net):
    net.model.embed_tokens.weight = Parameter(net.model.embed_tokens.weight[:90])


def shrink_values(net):
    net.model.layers[1].self_attn.v_proj.weight = Parameter(net.model.layers[1].self_attn.v_proj.weight[:32])


def shrink_norm(net):
    net.model.layers[0].input_layernorm.weight = Parameter(torch.ones(16))


def shrink_bias(net):
    net.model.layers[0].mlp.down_proj.bias = Parameter(torch.ones(16))


def halve_rotary(net):
    turn = net.model.rotary_emb.forward
    net.model.rotary_emb.forward = lambda *args, **kwargs: tuple(angle[..., :16] for angle in turn(*args, **kwargs))


@pytest.mark.parametrize(
    "change",
    [shrink_head, grow_head, halve_head, shrink_embedding, shrink_values, shrink_norm, shrink_bias, halve_rotary],
)
def test_weights_of_other_sizes_never_reach_the_kernel(change):
    net = network("Llama").network
    change(net)
    with pytest.raises(BadInput, match=r'generation.kernel: "native" needs weights of shape \[.* in float32'):
        NativeNetwork(net, 20)


def test_a_bias_beside_a_linear_without_one_is_added_where_it_belongs():
    model = network("Llama")
    attention = model.network.model.layers[0].self_attn
    attention.q_proj.bias = None
    attention.k_proj.bias = Parameter(torch.linspace(-2, 2, len(attention.k_proj.weight)))
    texts = [
        made(answer(model, outside(40), [lane(all_kept())], max_new_tokens=8, kernel=kernel)[0])
        for kernel in (None, "native")
    ]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("threads", [1, 3])
def test_no_rows_are_no_work(threads):
    native = NativeNetwork(network("Llama").network, 20)
    native.threads, logits = threads, torch.full((1, native.vocabulary), 7.0)
    native.call(native.library.answer, 1 << 30, 0, torch.empty(0, native.network.hidden), logits)
    assert (logits == 7).all()


@pytest.mark.parametrize(
    ("field", "value"),
    [("tokens", 97), ("tokens", -1), ("positions", 20), ("lengths", -1), ("strides", None), ("keys", np.int32)],
)
def test_rows_that_lead_outside_the_network_never_reach_the_kernel(field, value):
    native = NativeNetwork(network("Llama").network, 20)
    native.library = None  # a call would end in an AttributeError
    layers, heads = native.network.layers, native.kv_heads
    tables = [np.zeros(shape, np.int64) for shape in [(2,)] * 2 + [(layers, 2, heads)] * 3 + [(layers, 2)] * 2 + [(2,)]]
    rows = NativeRows(1, *tables)
    with pytest.raises(AttributeError, match="'forward'"):
        native.forward(rows)
    table = getattr(rows, field)
    bad = table[:1] if value is None else table.astype(value) if value is np.int32 else np.full_like(table, value)
    with pytest.raises(ValueError, match=field if field != "lengths" else "rows"):
        native.forward(rows._replace(**{field: bad}))


def test_a_lock_has_the_digest_of_the_source_and_not_of_a_build():
    root = Path(engine.__file__).parent.parent.parent
    digests = closure.sources(root)
    kernel = {name: digest for name, digest in digests.items() if name.startswith("protocol/engine/native/")}
    assert kernel["protocol/engine/native/step.cpp"] == files.sha256(library.SOURCE)
    assert not [name for name in kernel if not name.endswith((".py", ".cpp"))]


SANITIZED = """
import ctypes, sys
sys.path[:0] = {paths!r}
import torch
torch.set_num_threads(1)  # OpenMP's waits are none that ThreadSanitizer knows
from native_lanes import catalogue, made, network
from tiny_networks import answer, outside
from protocol.engine.native import library, network as native_network
build = native_network.NativeNetwork.__init__
def with_threads(self, *arguments):
    build(self, *arguments)
    self.threads = 3
native_network.NativeNetwork.__init__, native_network.MIN_THREAD_PRODUCTS = with_threads, 1
flags = ("-O1", "-g", "-std=c++17", "-ffp-contract=off", "-shared", "-fPIC", "-pthread",
         "-fsanitize={sanitizer}", "-fno-sanitize-recover=all")
whole = ctypes.CDLL(str(library.build(library.INSTRUCTIONS["AVX2"], flags)))
model, lanes = network("Qwen3", 64), catalogue()[::7]
lanes += [one._replace(budget=one.budget and one.budget + 30) for one in lanes]  # equal for a while
first = answer(model, outside(215, 3), lanes, max_new_tokens=8, temperature=0.7, kernel="native")
library.load = lambda: whole
second = answer(model, outside(215, 3), lanes, max_new_tokens=8, temperature=0.7, kernel="native")
assert list(map(made, first)) == list(map(made, second))
print("equal")
"""


@pytest.mark.soak
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_sanitizers_find_nothing(sanitizer):
    if torch.backends.cpu.get_cpu_capability() not in ("AVX512", "AVX2"):
        pytest.skip("a build for x86")
    names = {"address,undefined": ("libasan.so", "libubsan.so"), "thread": ("libtsan.so",)}[sanitizer]
    runtimes = [
        subprocess.run(["c++", f"-print-file-name={name}"], check=True, capture_output=True, text=True).stdout.strip()
        for name in names
    ]
    here = Path(__file__).parent
    script = SANITIZED.format(paths=[str(here), str(here.parent.parent)], sanitizer=sanitizer)
    environment = os.environ | {"LD_PRELOAD": " ".join(runtimes), "ASAN_OPTIONS": "detect_leaks=0"}
    ran = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, "equal\n"), ran.stderr[-3000:]
