"""EpiKV's methods in the engine, against loops over what the network itself shows, one number at a time."""

import math

import pytest
import torch
from plain_forward import of_lane, plain_forward
from tiny_networks import DIM, KV_HEADS, Q_HEADS, answer, lane, outside, tiny, watched

from policies import Cadence
from policies.epikv import BandDifference
from protocol.engine import LaneFailure, Outcome

DEPTH = 6  # l * 5 / 31: layer 10 is 2, 21 is 3; 7-13 are 1 and 2, 18-25 are 3 and 4
ONE, BANDS = ((2,), (3,)), ((1, 2), (3, 4))
NAMES = ("epikv", "hs-variance", "band-adaptive", "attn-x-hs", "kv-key", "kv-val", "lagkv-causal")
WIDTH = 64
BUDGET, CONTEXT, QUERY = 150, 68, 5  # the answer outgrows a window, and so does the prompt


def every_fourth(name):
    return watched(name, cadence=Cadence(interval=4))


class Loops:
    """Scores of all of the first `seen` tokens, one number at a time."""

    def __init__(self, hidden, keys, values, weights, asked, seen):
        self.hidden, self.keys, self.values, self.weights = hidden, keys, values, weights
        self.asked, self.seen = asked, seen

    def window(self, values, t):
        """Of the answer's tokens for one of these, and of the prompt's for one of those."""
        first = self.asked if t >= self.asked else 0
        return values[max(first, t - 63) : t + 1]

    def mean(self, values):
        return [math.fsum(own) / len(own) for own in (self.window(values, t) for t in range(self.seen))]

    def z(self, values):
        found = []
        for t in range(self.seen):
            own = self.window(values, t)
            mean = math.fsum(own) / len(own)
            deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in own) / len(own))
            found.append((values[t] - mean) / (deviation + 1e-6))
        return found

    def changes(self, layer):
        rows = self.hidden[layer].tolist()
        return [0.0, *(math.dist(rows[t - 1], rows[t]) for t in range(1, self.seen))]

    def bands(self, smooth, bands):
        high, low = ([smooth(self.changes(layer)) for layer in band] for band in bands)
        columns = zip(zip(*high, strict=True), zip(*low, strict=True), strict=True)
        return [sum(a) / len(a) - sum(b) / len(b) for a, b in columns]

    def of_vectors(self, measure):
        """The mean of what is measured of every layer and head, token by token."""
        each = [
            [measure(layer, head, t) for t in range(self.seen)] for layer in range(DEPTH) for head in range(KV_HEADS)
        ]
        return [math.fsum(column) / len(column) for column in zip(*each, strict=True)]

    def spread(self, vectors):
        return self.mean(self.of_vectors(lambda layer, head, t: variance(vectors[layer, head, t].tolist())))

    def lagged(self, vectors):
        ranges = {}
        return self.of_vectors(lambda *at: self.relative(vectors[at[:2]], at[2], ranges.setdefault(at[:2], {})))

    def relative(self, vectors, t, ranges):
        """By the 64 tokens before the chunk of t, chunks being counted from the first token of the answer."""
        begin = self.asked + (t - self.asked) // 64 * 64
        if begin <= 0:
            return 0.0
        if begin not in ranges:
            channels = vectors[max(0, begin - 64) : begin].T.tolist()
            ranges[begin] = [(min(own), max(own)) for own in channels]
        own = zip(vectors[t].tolist(), ranges[begin], strict=True)
        return variance([(x - low) / max(high - low, 1e-6) for x, (low, high) in own])

    def heard(self, held):
        """Standardised attention of what is held, and z."""
        received = self.weights[:, :, : self.seen].sum(2).mean((0, 1))[held].tolist()
        turned = self.z(self.changes(2))
        asked = sum(position < self.asked for position in held)
        scores = []
        for index, position in enumerate(held):
            own = received[:asked] if index < asked else received[asked:]
            deviation = math.sqrt(variance(own))
            mean = math.fsum(own) / len(own)
            scores.append((received[index] - mean) / (deviation + 1e-6) + turned[position])
        return scores

    def scores(self, name, held):
        if name == "attn-x-hs":
            return self.heard(held)
        made = {
            "epikv": lambda: self.bands(self.z, ONE),
            "hs-variance": lambda: self.bands(self.mean, ONE),
            "band-adaptive": lambda: self.bands(self.z, BANDS),
            "kv-key": lambda: self.spread(self.keys),
            "kv-val": lambda: self.spread(self.values),
            "lagkv-causal": lambda: [
                a + b for a, b in zip(self.lagged(self.keys), self.lagged(self.values), strict=True)
            ],
        }[name]()
        return [made[position] for position in held]


def variance(values):
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values) / len(values)


def expected(scores, held, asked):
    """The prompt, the last min(128, K/4) slots, and the highest of the others."""
    kept = {index for index, position in enumerate(held) if position < asked}
    kept |= set(range(len(held) - BUDGET // 4, len(held)))
    rest = sorted(set(range(len(held))) - kept, key=lambda index: (-scores[index], index))
    return sorted(kept | set(rest[: BUDGET - len(kept)]))


@pytest.fixture(scope="module")
def ran():
    """Every method beside the others, for three events on the way; nobody's text depends on who is there."""
    model, prompt = tiny(num_hidden_layers=DEPTH), outside(CONTEXT, QUERY)
    lanes = {name: every_fourth(name) for name in NAMES}
    given = [lane(policy, BUDGET) for policy in lanes.values()]
    new = BUDGET + 12 - CONTEXT - QUERY + 1
    outcomes = answer(model, prompt, given, max_new_tokens=new, prefill_chunk=30)
    return model, prompt, lanes, dict(zip(NAMES, outcomes, strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_what_is_kept_at_every_event_is_what_loops_over_a_plain_forward_find(ran, name):
    model, prompt, lanes, outcomes = ran
    policy, outcome, asked = lanes[name], outcomes[name], CONTEXT + QUERY
    assert isinstance(outcome, Outcome), outcome
    text = prompt.context + prompt.query + outcome.token_ids[:-1]
    plain = plain_forward(model.network, text, of_lane(policy, len(text), DEPTH).allowed)
    assert [len(view.token_ids) for view, _ in policy.notes] == [CONTEXT, 154, 158, 162]
    for view, kept in policy.notes[1:]:
        seen, held = len(view.token_ids), view.positions[0, 0].tolist()
        loops = Loops(plain.hidden, plain.keys, plain.values, plain.weights, asked, seen)
        scores = loops.scores(name, held)
        found = policy.scoring.score(view).slots
        assert found.flatten().tolist() == pytest.approx(scores, rel=1e-7, abs=1e-8)
        assert kept[0, 0].nonzero().flatten().tolist() == expected(scores, held, asked)
        assert (kept == kept[:1, :1]).all()


@pytest.mark.parametrize("name", ["epikv", "hs-variance", "band-adaptive"])
def test_hidden_states_are_those_that_transformers_shows(ran, name):
    """Before anything was evicted: `output_hidden_states`, where the output of layer l is entry l + 1."""
    model, prompt, lanes, outcomes = ran
    text = prompt.context + prompt.query + outcomes[name].token_ids[:-1]
    view, _ = lanes[name].notes[1]
    seen = len(view.token_ids)
    shown = model.network(torch.tensor([text[:seen]]), output_hidden_states=True).hidden_states
    hidden = torch.cat(shown[1:])
    loops = Loops(hidden, None, None, None, CONTEXT + QUERY, seen)
    scores = loops.scores(name, range(seen))
    assert lanes[name].scoring.score(view).slots.flatten().tolist() == pytest.approx(scores, rel=1e-7, abs=1e-8)


@pytest.mark.parametrize("name", NAMES)
def test_scores_are_frozen_when_their_token_is_generated_but_for_attention(ran, name):
    _, _, lanes, _ = ran
    policy = lanes[name]
    (first, kept), (later, _), _ = policy.notes[1:]
    before = policy.scoring.score(first).slots[0, 0][kept[0, 0]]
    after = policy.scoring.score(later).slots[0, 0][: len(before)]
    assert torch.equal(before, after) == (name != "attn-x-hs")


def test_bytes_of_state_are_those_of_every_tensor_that_is_carried():
    """One token before the last event 51 tokens were fed, 40 slots have a position from the event before, 43 are held
    and three tokens wait to be folded: their hidden states in each layer that is read, or keys, values and queries.
    """
    model, context, budget = tiny(num_hidden_layers=DEPTH), 20, 40
    given = [lane(every_fourth(name), budget) for name in NAMES]
    outcomes = answer(model, outside(context), given, max_new_tokens=33)
    positions, trace, token = DEPTH * KV_HEADS * budget * 8, (48 + WIDTH + 3 * WIDTH) * 8, DEPTH * 48 * 8
    token += 3 * DEPTH * (2 * KV_HEADS + Q_HEADS) * DIM * 8
    assert {name: outcome.state_bytes - positions for name, outcome in zip(NAMES, outcomes, strict=True)} == {
        "epikv": 2 * trace,
        "hs-variance": 2 * trace,
        "band-adaptive": 4 * trace,
        "attn-x-hs": trace + DEPTH * Q_HEADS * 43 * 8,
        "kv-key": token,
        "kv-val": token,
        "lagkv-causal": token + DEPTH * 4 * 2 * KV_HEADS * DIM * 8,  # two ranges of keys and of values
    }


@pytest.mark.parametrize(("name", "layers"), [("epikv", 3), ("hs-variance", 1), ("band-adaptive", 5)])
def test_a_model_in_which_both_bands_fall_on_one_layer_fails_the_lane(name, layers):
    """10 * 2 / 31 and 21 * 2 / 31 are layer 1 of three; 13 * 4 / 31 and 18 * 4 / 31 are layer 2 of five."""
    model = tiny(num_hidden_layers=layers)
    (outcome,) = answer(model, outside(20), [lane(every_fourth(name), 40)], max_new_tokens=3)
    assert isinstance(outcome, LaneFailure)
    assert f"of a model of {layers} layers; set scoring.depth" in outcome.reason


def test_a_prompt_that_does_not_fit_fails_its_lane():
    small = answer(tiny(num_hidden_layers=2), outside(50), [lane(every_fourth("epikv"), 49)], max_new_tokens=3)
    assert small[0].reason.startswith("budget of 49 slots is below the 50 protected slots of Preserve(")


def test_layers_are_counted_in_a_model_of_32_unless_said_otherwise():
    """The same two layers of six, once mapped and once as they are."""
    assert BandDifference().high.layers_in(DEPTH) == (2,)
    own = BandDifference(band_a=(2,), band_b=(3,), depth=None)
    own.refuse_depth(DEPTH)
    assert own.low.layers_in(DEPTH) == (3,)
    with pytest.raises(ValueError, match="reads the output of layer 3, but the model has 3 layers"):
        own.refuse_depth(3)


@pytest.mark.parametrize(("layers", "alike"), [(2, True), (4, True), (6, False)])
def test_in_a_shallow_model_the_bands_of_epikv_are_its_layers(layers, alike):
    """Of the embedded models, which have two, and of four: two names of one experiment."""
    given = [every_fourth("epikv"), every_fourth("band-adaptive")]
    model = tiny(num_hidden_layers=layers)
    answer(model, outside(30), [lane(policy, 60) for policy in given], max_new_tokens=50)
    one, other = ([mask.tolist() for _, mask in policy.notes] for policy in given)
    assert len(one) > 3
    assert (one == other) == alike
