"""Every statistic of every layer by a plain loop over what the unmodified network shows.

Its norms are float32 in a network of float64, so that a forward in blocks differs in the sixth place.
"""

import math

import pytest
import torch
from tiny_networks import DIM, KV_HEADS, LAYERS, Q_HEADS, tiny, words

from policies import Calibrated, Statistics, View
from policies.signals import Keys
from policies.triattention import per_head
from protocol.instruments.anatomy.run import layer_statistics

PROMPT, TOKENS = 9, 83
NAMES = {
    "hidden_change", "hidden_change_rolling", "hidden_change_ema", "hidden_change_z",
    "key_variance", "key_variance_rolling", "key_variance_unrotated", "key_variance_unrotated_rolling",
    "value_variance", "value_variance_rolling", "key_norm", "value_norm", "lag_key", "lag_value",
    "attention_received", "attention_received_mean", "attention_entropy", "triattention",
}  # fmt: skip


def shown(model, token_ids):
    """Outputs of the blocks [n, width], attention [q_head, n, n], keys before and after their rotation and
    values [kv_head, n, d], layer by layer, of transformers' own eager forward.
    """
    network, blocks, before = model.network, [], []
    kept = [
        layer.register_forward_hook(lambda module, given, output: blocks.append(output[0]))
        for layer in network.model.layers
    ]
    kept += [
        layer.self_attn.k_proj.register_forward_hook(lambda module, given, output: before.append(output[0]))
        for layer in network.model.layers
    ]
    network.set_attn_implementation("eager")
    try:
        output = network(torch.tensor([token_ids]), output_attentions=True, use_cache=True)
    finally:
        network.set_attn_implementation("sdpa")
        for hook in kept:
            hook.remove()
    heads = [own.view(len(token_ids), KV_HEADS, DIM).transpose(0, 1) for own in before]
    layers = output.past_key_values.layers
    attention = [own[0] for own in output.attentions]
    return blocks, attention, heads, [own.keys[0] for own in layers], [own.values[0] for own in layers]


def variance(vector):
    mean = sum(vector.tolist()) / len(vector)
    return sum((own - mean) ** 2 for own in vector.tolist()) / len(vector)


def begin(at):
    return 0 if at < PROMPT else PROMPT


def rolling(values, at):
    window = values[max(begin(at), at - 63) : at + 1]
    return sum(window) / len(window)


def rolling_z(values, at):
    window = values[max(begin(at), at - 63) : at + 1]
    mean = sum(window) / len(window)
    spread = math.sqrt(sum((own - mean) ** 2 for own in window) / len(window))
    return (values[at] - mean) / (spread + 1e-6)


def faded(values, at):
    if at == begin(at):
        return values[at]
    return 0.9 * faded(values, at - 1) + 0.1 * values[at]


def lagged(vectors, at):
    """Chunks of 64 begin with the answer at 9: [0, 9) is before [9, 73), which is before [73, 83)."""
    if at < PROMPT:
        return math.nan  # nothing is before it
    past = vectors[:, :PROMPT] if at < PROMPT + 64 else vectors[:, PROMPT : PROMPT + 64]
    found = []
    for head in range(KV_HEADS):
        low, high = past[head].min(0).values, past[head].max(0).values
        found.append(variance((vectors[head, at] - low) / (high - low).clamp(min=1e-6)))
    return sum(found) / KV_HEADS


def mean_over_heads(vectors, at, of):
    return sum(float(of(vectors[head, at])) for head in range(len(vectors))) / len(vectors)


def by_loops(blocks, attention, unrotated, keys, values):
    found, places = {}, range(TOKENS)
    change = [0.0] + [float((blocks[at] - blocks[at - 1]).norm()) for at in places[1:]]
    found["hidden_change"] = change
    found["hidden_change_rolling"] = [rolling(change, at) for at in places]
    found["hidden_change_ema"] = [faded(change, at) for at in places]
    found["hidden_change_z"] = [rolling_z(change, at) for at in places]
    for name, own in {"key": keys, "key_un": unrotated, "value": values}.items():
        spread = [mean_over_heads(own, at, variance) for at in places]
        name = "key_variance_unrotated" if name == "key_un" else f"{name}_variance"
        found |= {name: spread, f"{name}_rolling": [rolling(spread, at) for at in places]}
    for name, own in {"key": keys, "value": values}.items():
        found[f"{name}_norm"] = [mean_over_heads(own, at, torch.norm) for at in places]
        found[f"lag_{name}"] = [lagged(own, at) for at in places]
    weights = attention.tolist()
    received = [
        sum(weights[head][row][at] for head in range(Q_HEADS) for row in range(at, TOKENS)) / Q_HEADS for at in places
    ]
    found["attention_received"] = received
    found["attention_received_mean"] = [received[at] / (TOKENS - at) for at in places]
    found["attention_entropy"] = [
        sum(-own * math.log(own) for head in range(Q_HEADS) for own in weights[head][at] if own > 0) / Q_HEADS
        for at in places
    ]
    return found


@pytest.mark.parametrize(("family", "chunk"), [("Llama", None), ("Qwen2", 20)])
def test_rows_equal_plain_loops_over_the_unmodified_network(family, chunk):
    model, token_ids = tiny(family), words(TOKENS, seed=8)
    rows = layer_statistics.measure_layers(model, token_ids, PROMPT, chunk)
    found = {(row.name, row.layer): row.values for row in rows}
    assert len(found) == len(rows)
    assert found.pop(("position", None)).tolist() == list(range(TOKENS))
    assert found.keys() == {(name, layer) for name in NAMES for layer in range(LAYERS)}
    seen = shown(model, token_ids)
    for layer, own in enumerate(zip(*seen, strict=True)):
        for name, due in by_loops(*own).items():
            due = torch.tensor(due, dtype=torch.float64)
            near = {"rtol": 1e-5, "atol": 1e-5, "equal_nan": True, "msg": f"{name} {layer}"}
            torch.testing.assert_close(found[name, layer], due, **near)
    signals = {Keys(): seen[3], Calibrated("text", Statistics): model.statistics["text"]}
    view = View(torch.tensor(token_ids), LAYERS, KV_HEADS, frozenset(), 0, signals)
    expected = per_head().scoring.logits(view)
    centred = expected - expected.mean(-1, keepdim=True)
    standard = centred / centred.pow(2).mean(-1, keepdim=True).sqrt()
    due = standard.view(LAYERS, KV_HEADS, -1, TOKENS).amax(2).mean(1)
    for layer in range(LAYERS):
        torch.testing.assert_close(found["triattention", layer], due[layer].double(), rtol=1e-5, atol=1e-5)
