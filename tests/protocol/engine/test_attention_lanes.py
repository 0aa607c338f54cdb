"""Policies that read recent attention, through the events of an answer: against loops over one plain forward.

Every number comes from the queries, keys, values and weights of one forward of the whole text, whatever was
stored, carried or compacted on the way.
"""

import math
from itertools import pairwise

import pytest
from plain_forward import History, of_lane, plain_forward
from sampled import sampled
from tiny_networks import HEADS, KV_HEADS, Q_HEADS, answer, lane, outside, tiny, watched

from policies import Cadence
from policies.ahakv import ahakv
from policies.lagkv import lagkv
from policies.longflow import longflow
from policies.r_kv import r_kv, snapkv_rkv
from policies.raas import raas
from protocol.engine import Outcome

GROUP = Q_HEADS // KV_HEADS
WINDOW, KERNEL, WEIGHT, THRESHOLD = 4, 3, 0.3, 0.3
LOOKED = 0.06
SINKS, LAG = 1, 3


class Loops:
    """What each policy makes of the slots at `own` of one head, one number at a time."""

    def __init__(self, plain, layer, head, own, now, prompt, budget):
        self.plain, self.layer, self.head, self.own = plain, layer, head, own
        self.now, self.prompt, self.budget = now, prompt, budget
        self.keys, self.values = (part[layer, head].tolist() for part in (plain.keys, plain.values))
        self.queries = plain.queries[layer].tolist()

    def logit(self, query_head, row, position):
        return dot(self.queries[query_head][row], self.keys[position]) / math.sqrt(len(self.keys[0]))

    def importance(self):
        past, found = self.own[:-WINDOW], [0.0] * (len(self.own) - WINDOW)
        for row in range(self.now - WINDOW, self.now):
            heads = range(GROUP * self.head, GROUP * (self.head + 1))
            seen = [place for place, position in enumerate(past) if position <= row]
            shares = softmax([max(self.logit(head, row, past[place]) for head in heads) for place in seen])
            for place, share in zip(seen, shares, strict=True):
                found[place] += share / WINDOW
        reach = KERNEL // 2
        return [max(found[max(0, at - reach) : at + reach + 1]) for at in range(len(found))]

    def redundancy(self):
        unit = []
        for position in self.own:
            norm = math.sqrt(dot(self.keys[position], self.keys[position])) + 1e-8
            unit.append([channel / norm for channel in self.keys[position]])
        sums = [0.0] * len(unit)
        for row, one in enumerate(unit):
            cosines = [0.0 if row == column else dot(one, other) for column, other in enumerate(unit)]
            near = [column for column, cosine in enumerate(cosines) if cosine > THRESHOLD]
            cosines[near[-1] if near else 0] = 0.0
            sums = [total + cosine for total, cosine in zip(sums, cosines, strict=True)]
        return softmax([total / len(unit) for total in sums])

    def snapkv_rkv(self):
        return self.importance(), self.own[-WINDOW:]

    def r_kv(self):
        pairs = zip(self.importance(), self.redundancy(), strict=False)
        return [WEIGHT * one - (1 - WEIGHT) * other for one, other in pairs], self.own[-WINDOW:]

    def longflow(self):
        sizes = self.plain.values[self.layer].abs().sum(-1)
        rows = self.plain.weights[self.layer, :, self.now - 1]
        worth = [
            sum(float(rows[head, position] * sizes[head // GROUP, position]) for head in range(Q_HEADS))
            for position in self.own
        ]
        return worth, []

    def ahakv(self):
        received = [0.0] * len(self.own)
        for head in range(GROUP * self.head, GROUP * (self.head + 1)):
            for row in range(self.now - WINDOW, self.now):
                gain = math.sqrt(2 * max(0.0, math.log((row + 1) / self.budget)))
                seen = [place for place, position in enumerate(self.own) if position <= row]
                shares = softmax([gain * self.logit(head, row, self.own[place]) for place in seen])
                for place, share in zip(seen, shares, strict=True):
                    received[place] += share / GROUP
        squares, reach = [dot(self.values[at], self.values[at]) for at in self.own], KERNEL // 2
        near = [squares[max(0, at - reach) : at + reach + 1] for at in range(len(squares))]
        prior = [sum(some) / len(some) / max(sum(some) / len(some) for some in near) for some in near]
        return [a * b for a, b in zip(prior, received, strict=True)], self.own[-WINDOW:]

    def raas(self):
        """A later stamp is worth more, and of equal stamps the later token."""
        rows, worth = self.plain.weights[self.layer].amax(0).tolist(), []
        for position in self.own:
            looks = [row for row in range(position, self.now) if row == position or rows[row][position] >= LOOKED]
            worth.append(looks[-1] * 1000 + position)
        return worth, [position for position in self.own if position < self.prompt or position == self.now - 1]

    def lagkv(self):
        """Chunks of LAG after the sink, each ranked by the range of the next; the rest by age."""
        chunks = [self.own[at : at + LAG] for at in range(SINKS, len(self.own) - LAG + 1, LAG)]
        worth = {position: 1 + position for position in self.own}
        for own, after in pairwise(chunks):
            sums = [0.0] * LAG
            for vectors in (self.keys, self.values):
                ends = [(min(each), max(each)) for each in zip(*(vectors[at] for at in after), strict=True)]
                spread = []
                for position in own:
                    scaled = [(x - low) / (high - low) for x, (low, high) in zip(vectors[position], ends, strict=True)]
                    mean = sum(scaled) / len(scaled)
                    spread.append(math.sqrt(sum((x - mean) ** 2 for x in scaled) / (len(scaled) - 1)))
                sums = [total + share for total, share in zip(sums, softmax(spread), strict=True)]
            for position, total in zip(own, sums, strict=True):
                worth[position] = sum(other < total for other in sums) / LAG
        return [worth[position] for position in self.own], self.own[:SINKS]


def dot(one, other):
    return math.fsum(a * b for a, b in zip(one, other, strict=True))


def softmax(logits):
    shares = [math.exp(logit - max(logits)) for logit in logits]
    return [share / math.fsum(shares) for share in shares]


def expected(scores, stays, own, budget):
    """The positions that stay, and the highest scores of the others; a lower slot of equal ones."""
    rest = [at for at, position in enumerate(own) if position not in stays]
    rest.sort(key=lambda at: (-round(scores[at], 9), at))
    return sorted([*stays, *(own[at] for at in rest[: budget - len(stays)])])


# By name of the loop: the policy with short windows, and a budget; RaaS keeps a prompt of up to 27 tokens.
METHODS = {
    "r_kv": (r_kv(WINDOW, KERNEL, WEIGHT, THRESHOLD), 14),
    "snapkv_rkv": (snapkv_rkv(WINDOW, KERNEL), 14),
    "longflow": (longflow(), 14),
    "ahakv": (ahakv(WINDOW, KERNEL), 14),
    "raas": (raas(LOOKED), 31),
    "lagkv": (lagkv(SINKS, LAG), 14),
}


@pytest.mark.parametrize(
    ("method", "events"),
    sampled(
        [*METHODS],
        [(Cadence(interval=1), 0, 1), (Cadence(interval=3, slack=False), 3, 0), (Cadence(interval=5), 3, 7)],
        of=3,
    ),
)
def test_what_is_kept_at_every_event_is_what_loops_over_a_plain_forward_find(method, events):
    cadence, query, first_event = events
    (policy, budget), model, prompt = METHODS[method], tiny(), outside(24, query)
    policy = watched(policy, cadence=cadence)
    settings = {"max_new_tokens": 20, "prefill_chunk": 7, "first_event": first_event}
    (outcome,) = answer(model, prompt, [lane(policy, budget)], **settings)
    assert isinstance(outcome, Outcome), outcome
    text = prompt.context + prompt.query + outcome.token_ids[:-1]
    plain = plain_forward(model.network, text, of_lane(policy, len(text)).allowed)
    history, dropped = History(len(text)), 0
    for view, kept in policy.notes:
        now = len(view.token_ids)
        history.feed(now)
        for (layer, head), own in history.held.items():
            loops = Loops(plain, layer, head, list(own), now, view.prompt, budget)
            left = expected(*getattr(loops, method)(), own, budget) if len(own) > budget else own
            stays = kept[layer, head, : len(own)].tolist()
            assert [position for position, stay in zip(own, stays, strict=True) if stay] == left
            dropped += len(own) - len(left)
        history.evict(kept)
    assert len(policy.notes) >= 3
    assert dropped >= 6 * HEADS
