"""Both readings, token for token, against transformers' own generate: one window at a time, its own cache."""

import hashlib
from fractions import Fraction

import numpy as np
import pytest
import torch
from hybrid_networks import hybrid
from sampled import sampled
from tiny_networks import VOCABULARY, tiny, words
from transformers import DynamicCache

from protocol import engine
from protocol.instruments.anatomy.run.continuations import OccludedText, continue_padded, dropping_lanes
from protocol.instruments.anatomy.run.traces import Decoder, full_cache_lane
from protocol.instruments.anatomy.windows import span_of, windows

NEW, PAD = 5, 0


def decoder(model, chunk=None, lanes=None):
    return Decoder(model, chunk, None, lanes)


def ending(made, model):
    new = tuple(made)
    return new[: next((at for at, token in enumerate(new) if token in model.stop_ids), len(new))]


def generated(model, token_ids, cache=None, positions=None):
    """Of transformers. With a cache, the last token is the only one that it does not hold."""
    ids = torch.tensor([token_ids])
    more = {} if cache is None else {"past_key_values": cache, "position_ids": torch.tensor([positions])}
    made = model.network.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=NEW,
        pad_token_id=PAD,
        eos_token_id=sorted(model.stop_ids) or None,
        **more,
    )
    return ending(made[0, len(token_ids) :].tolist(), model)


def dropped_alone(model, token_ids, event, window):
    """Its own cache of the first `event` tokens, cut by index; what follows is fed at its positions."""
    network, cache = model.network, DynamicCache(config=model.network.config)
    network(torch.tensor([token_ids[:event]]), past_key_values=cache, use_cache=True)
    kept = [at for at in range(event) if at not in window]
    for layer in cache.layers:
        layer.keys, layer.values = layer.keys[:, :, kept], layer.values[:, :, kept]
    if (rest := list(range(event, len(token_ids))))[:-1]:
        fed = torch.tensor([[token_ids[at] for at in rest[:-1]]])
        network(fed, past_key_values=cache, use_cache=True, position_ids=torch.tensor([rest[:-1]]))
    places = kept + rest
    return generated(model, [token_ids[at] for at in places], cache, places)


def padded_alone(model, token_ids, window):
    return generated(model, [PAD if at in window else token for at, token in enumerate(token_ids)])


CASES = (
    ("Llama", "reasoning", 0, "1"),
    ("Llama", "all", 0, "0.5"),
    ("Llama", "prompt", 5, "1"),
    ("Qwen2", "reasoning", 4, "0.5"),
    ("Qwen2", "all", 3, "1"),
    ("Qwen2", "prompt", 0, "1"),
)


@pytest.mark.parametrize(("family", "occlude", "query", "cut"), CASES)
def test_each_window_says_what_generate_says_without_it(family, occlude, query, cut):
    """Windows of 8, stride 5, over a prompt of 20 and 22 tokens of an answer; chunks and places are few."""
    model = tiny(family, torch.float32)
    prompt, reasoning = words(20, seed=5), words(22, seed=6)
    span = span_of(occlude, 20 - query, query, len(reasoning), Fraction(cut))
    token_ids = (prompt + reasoning)[: span.tokens]
    model = model._replace(stop_ids=frozenset(generated(model, token_ids)[3:4]))
    found = windows(span, 8, 5)
    due = {
        "dropped": [dropped_alone(model, token_ids, span.event, window) for window in found],
        "padded": [padded_alone(model, token_ids, window) for window in found],
    }
    whole = generated(model, token_ids)
    fed = engine.Prompt(token_ids[: span.event], token_ids[span.event :], max(0, span.tokens - 20))
    lanes = (full_cache_lane(), *dropping_lanes(span.event, found))
    none = range(span.tokens, span.tokens)
    for chunk, places in ((None, None), (5, 3)):
        (outcomes,) = decoder(model, chunk, places).run([engine.Request("p", fed, lanes)], NEW)
        assert [one.token_ids for one in outcomes] == [whole, *due["dropped"]], chunk
        (anew,) = continue_padded(decoder(model, chunk, places), [OccludedText(token_ids, (*found, none))], PAD, NEW)
        assert [one.token_ids for one in anew] == [*due["padded"], whole], chunk
    # Windows change what is said, and the readings differ.
    assert len({whole, *due["dropped"]}) > 1
    assert len({*due["dropped"], *due["padded"]}) > len(found)


@pytest.mark.parametrize(
    ("model", "size"), sampled([tiny("Qwen2"), hybrid("Qwen3"), hybrid("GptOss")], [(None, None), (7, 2)], of=2)
)
def test_texts_of_any_length_are_padded_side_by_side(model, size):
    chunk, places = size
    """Three texts, one of which is asked without a window; sliding layers and sinks are not packed."""
    texts = [
        OccludedText(words(23, seed=1), (range(0, 3), range(9, 21), range(21, 22))),
        OccludedText(words(4, seed=2), (range(4, 4),)),
        OccludedText(words(31, seed=3), (range(14, 16), range(31, 31), range(2, 6))),
    ]
    found = continue_padded(decoder(model, chunk, places), texts, PAD, NEW)
    due = [[padded_alone(model, text.token_ids, window) for window in text.windows] for text in texts]
    assert [[one.token_ids for one in own] for own in found] == due


def test_logits_that_name_no_token_refuse_their_window_alone():
    model = tiny("Llama", torch.float32)
    embed = model.network.get_input_embeddings().weight
    with torch.no_grad():
        embed[11] = torch.nan
    token_ids = tuple(token if token != 11 else 12 for token in words(20))
    ((fine, broken),) = continue_padded(
        decoder(model), [OccludedText(token_ids, (range(20, 20), range(2, 6)))], 11, NEW
    )
    assert fine.token_ids == generated(model, token_ids)
    assert (broken.token_ids, broken.refused) == ((), "logits: not finite at decode step 0")


TEMPERATURE, SEED = 1.7, 3


def sampled(model, token_ids, written, count, dropped=()):
    """By a plain loop: the network reads everything again for each token, but for the slots that were dropped of the
    first `len(token_ids) - 1` tokens, which the others were computed with. written: how many of these tokens were drawn
    before, so that the noise goes on from there.
    """
    network, event = model.network, len(token_ids) - 1
    made = []
    for step in range(written, written + count):
        cache = DynamicCache(config=network.config)
        network(torch.tensor([token_ids[:event]]), past_key_values=cache, use_cache=True)
        kept = [at for at in range(event) if at not in dropped]
        for layer in cache.layers:
            layer.keys, layer.values = layer.keys[:, :, kept], layer.values[:, :, kept]
        for at in range(event, len(token_ids) + len(made)):
            ids, places = torch.tensor([[(*token_ids, *made)[at]]]), torch.tensor([[at]])
            logits = network(ids, past_key_values=cache, use_cache=True, position_ids=places).logits[0, -1]
        digest = hashlib.sha256(repr(("gumbel", "p", SEED, step)).encode()).digest()
        raw = np.random.Philox(key=int.from_bytes(digest[:16])).random_raw(VOCABULARY)
        noise = -np.log(-np.log(((raw >> np.uint64(12)) + 0.5) / 2.0**52))
        made.append(int((logits.double() / TEMPERATURE + torch.tensor(noise)).argmax()))
    return tuple(made)


def test_sampled_continuations_draw_the_noise_that_the_tokens_of_the_trace_had():
    """With nothing occluded the trace goes on as it did; with a window occluded, only the logits are others."""
    model, prompt, cut = tiny("Llama", torch.float32), words(20, seed=5), 14
    decode = Decoder(model, None, None, None, temperature=TEMPERATURE, seed=SEED)
    with torch.no_grad():
        trace = sampled(model, prompt, 0, cut + NEW)
    ((whole,),) = decode.run([engine.Request("p", engine.Prompt(prompt, ()), (full_cache_lane(),))], cut + NEW)
    assert whole.token_ids == trace
    token_ids = prompt + trace[:cut]
    event, found = len(token_ids) - 1, (range(20, 26), range(25, 33), range(3, 9))
    fed = engine.Prompt(token_ids[:event], token_ids[event:], cut)
    (outcomes,) = decode.run([engine.Request("p", fed, (full_cache_lane(), *dropping_lanes(event, found)))], NEW)
    none = range(len(token_ids), len(token_ids))
    (anew,) = continue_padded(decode, [OccludedText(token_ids, (*found, none), "p", cut)], PAD, NEW)
    rest = trace[cut:]
    with torch.no_grad():
        dropped = [sampled(model, token_ids, cut, NEW, window) for window in found]
        padded = [
            sampled(model, tuple(PAD if at in window else token for at, token in enumerate(token_ids)), cut, NEW)
            for window in found
        ]
    assert [one.token_ids for one in outcomes] == [rest, *dropped]
    assert [one.token_ids for one in anew] == [*padded, rest]
    assert len({rest, *dropped, *padded}) > 3
