"""Prefill competitors through a prefill in chunks and the events of an answer: against loops over one plain
forward. In `defensivekv` and `layer-defensivekv` heads come to hold different slots, and different numbers.
"""

import math

import pytest
import torch
from plain_forward import History, of_lane, plain_forward
from tiny_networks import FAMILIES, KV_HEADS, LAYERS, Q_HEADS, answer, lane, outside, tiny, watched, words

from policies import Cadence
from policies.caote import caote
from policies.defensivekv import defensivekv, layer_defensivekv
from policies.expected_attention import QueryMoments, expected_attention
from protocol.engine import Outcome, prefill
from protocol.engine.observation import observe_forward

GROUP = Q_HEADS // KV_HEADS
WINDOW, KERNEL, SINKS, FUTURE, BUDGET = 4, 3, 2, 9, 14
POLICIES = {
    "caote": caote(),
    "expected-attention": expected_attention(FUTURE, SINKS),
    "defensivekv": defensivekv(WINDOW, KERNEL),
    "layer-defensivekv": layer_defensivekv(WINDOW, KERNEL),
}


def before_rotation(network, run):
    """What `run` returns, and the queries [layer, q_head, t, d] before RoPE of the forward in it."""
    found = []

    def note(module, given, output):
        heads = output if output.dim() == 4 else output.view(*output.shape[:2], Q_HEADS, -1)
        found.append(heads[0].transpose(0, 1))

    attentions = [layer.self_attn for layer in network.model.layers]
    hooks = [getattr(own, "q_norm", own.q_proj).register_forward_hook(note) for own in attentions]
    result = run()
    for hook in hooks:
        hook.remove()
    return result, torch.stack(found)


@pytest.mark.parametrize("family", FAMILIES)
def test_moments_are_those_of_the_queries_before_they_are_turned(family):
    model, context = tiny(family), words(40)
    _, plain = before_rotation(model.network, lambda: plain_forward(model.network, context))
    with observe_forward(model.network), torch.no_grad():
        fed = prefill.feed(model, context, [QueryMoments(4)], chunk=7)
    for layer, moments in enumerate(fed.signals[QueryMoments(4)]):
        own = plain[layer, :, 4:]
        apart = own - own.mean(1, keepdim=True)
        torch.testing.assert_close(moments.mean, own.mean(1), rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(moments.covariance, apart.mT @ apart / 36, rtol=1e-9, atol=1e-9)


class Loops:
    """What each policy makes of the slots that the heads hold at an event."""

    def __init__(self, network, plain, unturned, held, now):
        self.network, self.plain, self.unturned, self.held, self.now = network, plain, unturned, held, now

    def rows(self, layer, query_head, count):
        """Attention of the last tokens over what the head holds now."""
        own = self.held[layer, query_head // GROUP]
        found = []
        for row in range(self.now - count, self.now):
            query, keys = (self.plain.queries[layer, query_head, row], self.plain.keys[layer, query_head // GROUP])
            seen = [position for position in own if position <= row]
            shares = (keys[seen] @ query / math.sqrt(len(query))).softmax(0).tolist()
            found.append(shares + [0.0] * (len(own) - len(seen)))
        return found

    def heads(self, head):
        return range(GROUP * head, GROUP * (head + 1))

    def caote(self, layer, head):
        own = self.held[layer, head]
        values, worth = self.plain.values[layer, head, own], torch.zeros(len(own), dtype=torch.float64)
        for query_head in self.heads(head):
            (row,) = self.rows(layer, query_head, 1)
            shares = torch.tensor(row, dtype=torch.float64)
            for slot, share in enumerate(row):
                without = shares.clone()
                without[slot] = 0
                moved = shares @ values - (without / without.sum()) @ values
                worth[slot] += float(moved.norm()) / GROUP if share else 0.0
        return worth.tolist()

    def expected_attention(self, layer, head):
        own, dim = self.held[layer, head], self.plain.keys.shape[-1]
        keys = self.plain.keys[layer, head, own[SINKS:]]
        positions = torch.arange(self.now, self.now + FUTURE)[None]
        cosine, sine = (part[0].double() for part in self.network.model.rotary_emb(keys, positions))
        # One column for each channel: what the mean of all turns makes of it.
        unit, half = torch.eye(dim, dtype=torch.float64), dim // 2
        columns = []
        for channel in range(dim):
            one = unit[channel]
            columns.append((one * cosine + torch.cat([-one[half:], one[:half]]) * sine).mean(0))
        turn = torch.stack(columns, 1)
        shares = torch.zeros(len(keys), dtype=torch.float64)
        for query_head in self.heads(head):
            queries = self.unturned[layer, query_head, SINKS : self.now]
            mean = queries.mean(0)
            spread = (queries - mean).T @ (queries - mean) / len(queries)
            logits = keys @ (turn @ mean) / math.sqrt(dim)
            logits += ((keys @ turn) @ spread * (keys @ turn)).sum(1) / (2 * dim)
            shares += logits.softmax(0) / GROUP
        sizes = self.plain.values[layer, head, own[SINKS:]].norm(dim=1)
        return [0.0] * SINKS + (shares * sizes).tolist()

    def norm(self, layer, head, position):
        weight = self.network.model.layers[layer].self_attn.o_proj.weight
        dim = self.plain.values.shape[-1]
        slices = [weight[:, dim * query_head : dim * (query_head + 1)] for query_head in self.heads(head)]
        return sum(float((own @ self.plain.values[layer, head, position]).abs().sum()) for own in slices) / GROUP

    def defensive(self, layer):
        """By head, the scores of its slots before its window."""
        worth, certain, tails = {}, {}, []
        for head in range(KV_HEADS):
            own = self.held[layer, head]
            past = len(own) - WINDOW
            rows = [row[:past] for query in self.heads(head) for row in self.rows(layer, query, WINDOW)]
            tails += [sum(row[-WINDOW:]) for row in rows]
            peaks = [max(column) for column in zip(*map(pooled, rows), strict=True)]
            worth[head] = []
            for slot, peak in enumerate(peaks):
                holders = [other for other in range(KV_HEADS) if own[slot] in self.held[layer, other]]
                norms = [self.norm(layer, other, own[slot]) for other in holders]
                share = self.norm(layer, head, own[slot]) / (KV_HEADS * sum(norms) / len(norms))
                worth[head].append(max(peak, sum(peaks) / past) * share)
            certain[head] = [sum(column) for column in zip(*rows, strict=True)]
        highest, threshold = max(map(max, worth.values())), 0.9 - sum(tails) / len(tails)
        for head, mean in certain.items():
            past, left = len(mean), 0.0
            most = max(0, past * BUDGET // (past + WINDOW) - WINDOW)
            for slot in sorted(range(past), key=[-one for one in mean].__getitem__)[:most]:
                left += mean[slot] / sum(mean)
                if left >= threshold:
                    break
                worth[head][slot] = highest
        return worth


def pooled(row):
    reach = KERNEL // 2
    sums = [sum(row[max(0, at - reach) : at + reach + 1]) for at in range(len(row))]
    return [one * sum(row) / sum(sums) for one in sums]


def best(scores, count):
    """The keys of the highest scores; of equal ones the lower key."""
    return set(sorted(scores, key=lambda key: (-round(scores[key], 9), key))[:count])


def left_by(name, loops):
    """By layer and head, the positions that stay."""
    held, stays = loops.held, {}
    if name in ("caote", "expected-attention"):
        sinks = SINKS if name == "expected-attention" else 0
        for (layer, head), own in held.items():
            scores = dict(enumerate(getattr(loops, name.replace("-", "_"))(layer, head)))
            free = {slot: score for slot, score in scores.items() if slot >= sinks}
            kept = {*range(sinks), *best(free, BUDGET - sinks)}
            stays[layer, head] = [own[slot] for slot in sorted(kept)]
        return stays
    scores = {
        (layer, head, slot): score
        for layer in range(LAYERS)
        for head, own in loops.defensive(layer).items()
        for slot, score in enumerate(own)
    }
    chosen = set()
    together = [range(LAYERS)] if name == "layer-defensivekv" else [[layer] for layer in range(LAYERS)]
    for layers in together:
        of_these = {key: score for key, score in scores.items() if key[0] in layers}
        chosen |= best(of_these, len(layers) * KV_HEADS * (BUDGET - WINDOW))
    for (layer, head), own in held.items():
        past = len(own) - WINDOW
        kept = [own[slot] for slot in range(past) if (layer, head, slot) in chosen]
        stays[layer, head] = kept + own[past:]
    return stays


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize(
    ("cadence", "query", "first_event"),
    [
        (Cadence(interval=3, slack=False), 3, 0),
        pytest.param(Cadence(interval=1), 0, 1, marks=pytest.mark.soak),
        pytest.param(Cadence(interval=5), 3, 7, marks=pytest.mark.soak),
    ],
    ids=["every third, the query cut", "every step", "every fifth, from the seventh"],
)
def test_what_is_kept_at_every_event_is_what_loops_over_a_plain_forward_find(name, cadence, query, first_event):
    policy, model, prompt = watched(POLICIES[name], cadence=cadence), tiny(), outside(24, query)
    settings = {"max_new_tokens": 2 + 3 * cadence.interval, "prefill_chunk": 7, "first_event": first_event}
    (outcome,) = answer(model, prompt, [lane(policy, BUDGET)], **settings)
    assert isinstance(outcome, Outcome), outcome
    text = prompt.context + prompt.query + outcome.token_ids[:-1]
    allowed = of_lane(policy, len(text)).allowed
    plain, unturned = before_rotation(model.network, lambda: plain_forward(model.network, text, allowed))
    history, counts = History(len(text)), set()
    for view, kept in policy.notes:
        now = len(view.token_ids)
        history.feed(now)
        total = sum(map(len, history.held.values()))
        if total > BUDGET * LAYERS * KV_HEADS:
            stays = left_by(name, Loops(model.network, plain, unturned, history.held, now))
            for (layer, head), own in history.held.items():
                flags = kept[layer, head, : len(own)].tolist()
                found = [position for position, stay in zip(own, flags, strict=True) if stay]
                assert found == stays[layer, head], (now, layer, head)
        history.evict(kept)
        counts |= set(map(len, history.held.values()))
    assert len(policy.notes) >= 2
    assert (len(counts) > 1) == ("defensive" in name)
