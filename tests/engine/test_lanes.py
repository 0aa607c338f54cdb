"""Lanes share one prefill and one batch, and nothing else."""

import pytest
import torch
from tiny_networks import FAMILIES, Counting, Drawn, Full, Refusing, Watching, lane, outside, tiny

from protocol import engine
from protocol.engine import Lane, Prompt
from protocol.evidence.refusals import BadInput


def forwards(model):
    """The [lane, tokens] shape of every forward from now on."""
    shapes = []
    model.network.register_forward_pre_hook(
        lambda module, given, named: shapes.append(tuple(named["input_ids"].shape)), with_kwargs=True
    )
    return shapes


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_lane_alone_and_in_a_batch_of_many_says_the_same(family, temperature):
    model = tiny(family)
    lanes = [lane(Drawn(draw), 6 + 5 * (draw % 3), seed=draw % 2) for draw in range(6)] + [
        lane(Full(), seed=1)
    ]
    settings = {"problem": "p", "max_new_tokens": 8, "temperature": temperature}
    together = engine.run(model, outside(40, 2), lanes, **settings).outcomes
    alone = [engine.run(model, outside(40, 2), [one], **settings).outcomes[0] for one in lanes]
    assert list(together) == alone
    assert len({outcome.token_ids for outcome in alone}) > 3


def test_the_context_is_fed_once_and_then_all_lanes_go_as_one_batch():
    model = tiny()
    shapes = forwards(model)
    lanes = [lane(Full()), lane(Drawn(1), 10), lane(Drawn(2), 20)]
    engine.run(model, outside(40, 4), lanes, problem="p", max_new_tokens=3)
    assert shapes == [(1, 40), (3, 4), (3, 1), (3, 1)]


def test_a_signal_that_several_policies_need_is_measured_once_a_layer():
    first, second = Counting("a"), Counting("b")
    watchers = [
        Watching(frozenset({first})),
        Watching(frozenset({Counting("a"), second})),
        Watching(frozenset()),
    ]
    model = tiny()
    engine.run(model, outside(40), [lane(w, 5, seed=4) for w in watchers], problem="p", max_new_tokens=2)
    assert [seen[:4] for seen in first.seen] == [
        (layer, (4, 40, 16), (2, 40, 16), 0.25) for layer in range(3)
    ]
    assert [seen[0] for seen in second.seen] == [0, 1, 2]
    (only_a,), (both,), (nothing,) = (watcher.views for watcher in watchers)
    assert only_a.signals == {first: (None, "a1", "a2")}
    assert both.signals == {first: (None, "a1", "a2"), second: (None, "b1", "b2")}
    assert nothing.signals == {}, "a view holds what its own policy declared, whoever else is in the batch"


def test_signals_see_queries_and_keys_after_rope():
    signal = Counting("a")
    model, prompt = tiny(), outside(40)
    engine.run(model, prompt, [lane(Watching(frozenset({signal})), 5)], problem="p", max_new_tokens=1)
    layer = model.network.model.layers[0]
    with torch.no_grad():
        hidden = layer.input_layernorm(model.network.model.embed_tokens(torch.tensor([prompt.context])))
        plain = layer.self_attn.k_proj(hidden).view(40, 2, 16).transpose(0, 1)
    # RoPE turns the pairs (i, i + 8) of the key at position m by m / 10000^(i / 8).
    angle = torch.arange(40.0, dtype=torch.float64)[:, None] * 10000.0 ** (
        -torch.arange(8.0, dtype=torch.float64) / 8
    )
    left, right = plain[..., :8], plain[..., 8:]
    turned = torch.cat(
        [left * angle.cos() - right * angle.sin(), right * angle.cos() + left * angle.sin()], -1
    )
    torch.testing.assert_close(signal.seen[0][4], turned, rtol=1e-4, atol=1e-4)


def test_a_view_tells_the_prompt_and_a_stream_shared_by_all_arms_of_a_seed():
    watchers = [Watching(frozenset()) for _ in range(3)]
    lanes = [lane(watcher, 5, seed) for watcher, seed in zip(watchers, (0, 0, 1), strict=True)]
    prompt = outside(40)
    engine.run(tiny(), prompt, lanes, problem="p", max_new_tokens=1)
    engine.run(tiny(), prompt, lanes[:1], problem="q", max_new_tokens=1)
    view = watchers[0].views[0]
    assert (tuple(view.token_ids.tolist()), view.token_ids.dtype) == (prompt.context, torch.int64)
    assert (view.layers, view.kv_heads, view.sentence_ends) == (3, 2, frozenset({7}))
    p0, p0_again, p1, q0 = (
        w.views[i].seed for w, i in zip([*watchers, watchers[0]], (0, 0, 0, 1), strict=True)
    )
    assert p0 == p0_again
    assert len({p0, p1, q0}) == 3
    assert all(0 <= seed < 2**64 for seed in (p0, p1, q0))


def test_a_policy_that_refuses_fails_its_own_lane_only():
    model, prompt = tiny(), outside(40)
    lanes = [lane(Drawn(1), 10), lane(Refusing(), 9), lane(Full())]
    ran = engine.run(model, prompt, lanes, problem="p", max_new_tokens=4)
    assert ran.outcomes[1] == engine.LaneFailure("budget 9: below the 132 protected slots; raise it")
    without = engine.run(model, prompt, [lanes[0], lanes[2]], problem="p", max_new_tokens=4)
    assert (ran.outcomes[0], ran.outcomes[2]) == without.outcomes


def test_when_every_policy_refuses_nothing_is_decoded():
    model = tiny()
    shapes = forwards(model)
    ran = engine.run(model, outside(40), [lane(Refusing(), 9)] * 2, problem="p", max_new_tokens=4)
    assert [type(outcome) for outcome in ran.outcomes] == [engine.LaneFailure] * 2
    assert shapes == [(1, 40)]


def test_a_fault_of_a_policy_that_is_no_refusal_is_not_hidden():
    class Faulty(Refusing):
        def keep(self, view, budget):
            raise KeyError("a signal it never declared")

    with pytest.raises(KeyError, match="never declared"):
        engine.run(tiny(), outside(40), [lane(Faulty(), 9)], problem="p", max_new_tokens=4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prompt": Prompt((), (1,))}, "prompt.context: is empty"),
        ({"lanes": []}, "lanes: is empty"),
        ({"max_new_tokens": 0}, "max_new_tokens: 0 given"),
        ({"temperature": -1.0}, "temperature: -1.0 given"),
        ({"temperature": float("nan")}, "temperature: nan given"),
        ({"lanes": [Lane("x/0.5", Drawn(), None, 0)]}, "budget of lane x/0.5: None given; give a number"),
        (
            {"lanes": [Lane("full", Full(), 12, 0)]},
            "budget of lane full: 12 given; None fits a policy that never",
        ),
    ],
)
def test_what_cannot_be_run_is_refused_by_name(changes, message):
    given = {"prompt": outside(40), "lanes": [lane(Full())], "problem": "p", "max_new_tokens": 2} | changes
    with pytest.raises(BadInput, match=message):
        engine.run(tiny(), **given)


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("Mistral", {"sliding_window": 8}),
        ("Qwen2", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}),
        ("Qwen3", {"layer_types": ["full_attention", "linear_attention", "full_attention"]}),
    ],
)
def test_models_with_sliding_or_hybrid_layers_are_refused_by_name(family, changes):
    model = tiny(family) if "layer_types" in changes else tiny(family, **changes)
    for name, value in changes.items():
        setattr(model.network.config, name, value)
    with pytest.raises(
        BadInput, match=f"model tiny-{family}: has layers of (sliding|linear)_attention; choose"
    ):
        engine.run(model, outside(40), [lane(Full())], problem="p", max_new_tokens=2)
