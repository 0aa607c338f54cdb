"""A network whose answer is copied from one marked token: its windows flip, and no other."""

import pytest
import torch
import transformers
from tiny_networks import TinyModel, words

from protocol import engine
from protocol.instruments.anatomy.run.continuations import OccludedText, continue_padded, dropping_lanes
from protocol.instruments.anatomy.run.traces import Decoder
from protocol.instruments.anatomy.windows import Span, count_flips, windows

WIDTH, DIGITS = 64, 10
MARKED, SAID, NOTHING = 20, 30, 40  # digit j is marked as token 20 + j, and answered as token 30 + j


def copying():
    """One layer, one head. Every query looks for the mark, in a channel that RoPE does not turn; the value of
    a marked token is its digit, which the head of the network reads.
    """
    config = transformers.LlamaConfig(
        vocab_size=41,
        hidden_size=WIDTH,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        rope_parameters={"rope_type": "default", "rope_theta": 1e12},
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
        tie_word_embeddings=False,
    )
    network = transformers.LlamaForCausalLM(config).double().eval().requires_grad_(False)
    for name, weight in network.named_parameters():
        weight.fill_(1.0 if "norm" in name else 0.0)
    (layer,) = network.model.layers
    embedded, attention = network.model.embed_tokens.weight, layer.self_attn
    embedded[:, 0] = 1  # what every token has, and nothing else
    embedded[:, 1] = 1  # so that all embeddings are of one length: the mark takes its place
    for digit in range(DIGITS):
        embedded[MARKED + digit, 1:3] = torch.tensor([0.0, 1.0])
        attention.v_proj.weight[digit, 10 + digit] = 1
        embedded[MARKED + digit, 10 + digit] = 1
        attention.o_proj.weight[40 + digit, digit] = 1
        network.lm_head.weight[SAID + digit, 40 + digit] = 1
    last = WIDTH // 2 - 1  # the slowest pair
    attention.q_proj.weight[last, 0] = 30
    attention.k_proj.weight[last, 2] = 30
    network.lm_head.weight[NOTHING, 0] = 0.01  # what is said where nothing is marked
    return TinyModel("copying", network)


@pytest.mark.parametrize(("at", "digit"), [(4, 7), (17, 2), (33, 0)])
def test_the_windows_over_the_marked_token_flip_and_no_others(at, digit):
    model, text = copying(), [token % 20 for token in words(40, seed=at)]
    text[at] = MARKED + digit
    span = Span(40, 39, 0, 39)
    found = windows(span, 6, 3)
    decode = Decoder(model, None, None, None)
    prompt = engine.Prompt(tuple(text[:39]), tuple(text[39:]))
    (dropped,) = decode.run([engine.Request("p", prompt, dropping_lanes(39, found))], 1)
    in_lanes = [one.token_ids for one in dropped]
    anew = [one.token_ids for one in continue_padded(decode, [OccludedText(tuple(text), found)], 0, 1)[0]]
    due = [(NOTHING,) if at in window else (SAID + digit,) for window in found]
    assert in_lanes == due
    assert anew == due
    rows = [
        [window.start, window.stop, "", "wrong" if said == (NOTHING,) else "correct"]
        for window, said in zip(found, in_lanes, strict=True)
    ]
    over = {place for window in found if at in window for place in window}
    *flips, last = count_flips(40, rows)
    assert [bool(count) for count in flips] == [place in over for place in range(39)]
    assert last is None
