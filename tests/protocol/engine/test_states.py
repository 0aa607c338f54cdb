"""Lanes whose slots are coded and merged: against lists of slots, and against lanes that store verbatim."""

from dataclasses import asdict, dataclass, replace

import gguf
import pytest
import torch
from coded_and_merged import Coded, Gathered, Told, affine
from gguf import quants
from plain_slots import KiviLane, PlainLane, QuestLane
from sampled import sampled
from test_run_types import told
from tiny_networks import DIM, KV_HEADS, LAYERS, Adaptive, Noise, Offsets, answer, lane, outside, tiny

from policies import Cadence, Merging, PerHead, Protect, Shared, Verbatim, get
from policies.decoding import StateLines
from policies.quantised.states import Kivi, Quantised
from policies.quest import Quest
from policies.signals import AttentionSums, Norms
from policies.syn_mem import BoundedSpans, StaticHybrid
from protocol.engine import Outcome, Request, max_concurrent
from protocol.formats.refusals import BadInput

STATES = {
    "coded": Coded(),
    "merged": Gathered(),
    "merged without mass": Gathered(mass=False),
    "merged and coded": Gathered(rank=6),
}
MEASURED = frozenset({AttentionSums(), AttentionSums(3), Norms()})


def keeping(state, routing=None, cadence=None, draw=1, needs=frozenset(), **parts):
    return Told(
        Noise(draw, needs),
        routing=routing or PerHead(),
        cadence=cadence or Cadence(),
        protect=Protect(0, 1),
        state=state,
        **parts,
    )


def plain_lane(model, policy, prompt, outcome, scale=DIM**-0.5):
    """Logits at every step of a lane, and what its slots are at each event: (view, slots, lane) by `look`."""
    state = policy.state
    rank = getattr(state, "rank", 0)
    packed = (of_gguf(state.keys), of_gguf(state.values)) if isinstance(state, Quantised) else None
    if isinstance(state, Kivi):
        plain = KiviLane(model.network, bits=state.bits, recent=state.recent)
    elif isinstance(state, Quest):
        plain = QuestLane(model.network, **asdict(state), question_end=prompt.tokens)
    else:
        plain = PlainLane(model.network, affine(rank) if rank else None, packed, state.merges and state.mass)
    events = {len(view.token_ids): (view, event) for view, event in policy.notes}
    logits = plain.prefill(prompt.context)
    _, first = events.pop(len(prompt.context))
    plain.evict(first.retained, first.merging)
    plain.code()
    plain.settle()
    chosen = [] if prompt.query else [logits]
    for number, token in enumerate((*prompt.query, *outcome.token_ids[:-1])):
        logits = plain.feed(token)
        plain.settle()
        if number + 1 >= len(prompt.query):
            chosen.append(logits)
        if plain.seen in events:
            view, event = events.pop(plain.seen)
            compare(plain, view, scale)
            plain.evict(event.retained, event.merging)
            plain.settle()
    assert not events
    return chosen, plain


def of_gguf(name):
    """What remains of a vector that gguf packs and unpacks."""
    kind = gguf.GGMLQuantizationType[name.upper()]

    def packed(vector):
        return torch.from_numpy(
            quants.dequantize(quants.quantize(vector.float().numpy()[None], kind), kind)[0]
        ).double()

    return packed


def compare(plain, view, scale):
    """What a policy is told of its slots."""
    weights = None if view.weights is None else view.weights.expand(LAYERS, KV_HEADS, -1)
    positions = view.positions.expand(LAYERS, KV_HEADS, -1)
    windows = plain.of_window(3, scale) if view.signals else {}
    for (layer, head), slots in plain.held.items():
        assert positions[layer, head, : len(slots)].tolist() == [slot.position for slot in slots]
        assert positions[layer, head, len(slots) :].eq(-1).all()
        if weights is not None:
            assert weights[layer, head, : len(slots)].tolist() == [slot.weight for slot in slots]
            assert weights[layer, head, len(slots) :].eq(0).all()
        if not view.signals:
            continue
        norms, n = view.signals[Norms()][layer], len(slots)
        close(norms.key[head, :n], [slot.key.norm() for slot in slots])
        close(norms.value[head, :n], [plain.read(layer, head, slot.value).norm() for slot in slots])
        for query_head in (2 * head, 2 * head + 1):
            found = view.signals[AttentionSums()][layer][query_head]
            close(found[:n], [slot.received[query_head] for slot in slots])
            found = view.signals[AttentionSums(3)][layer][query_head]
            close(found[:n], [windows.get((layer, query_head, number), 0.0) for number in range(n)])


def close(found, expected):
    expected = torch.tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(found.double(), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("family", "routing"), [("Qwen3", Shared()), ("Llama", Offsets()), ("Qwen3", Adaptive())], ids=str
)
def test_every_step_is_that_of_plain_lists_of_slots(family, routing, logits_of):
    model, prompt = tiny(family), outside(26, 5)
    cadence = Cadence(interval=3)
    company = [lane(keeping(Verbatim(), Adaptive(), Cadence(interval=2), draw=2), 9, seed=9)]
    policies = [keeping(state, routing, cadence, needs=MEASURED) for state in STATES.values()]
    lanes = [lane(policy, 12, seed=seed) for seed, policy in enumerate(policies)]
    *outcomes, _ = answer(model, prompt, [*lanes, *company], max_new_tokens=9)
    every_step(model, prompt, policies, outcomes, logits_of, 9)


def every_step(model, prompt, policies, outcomes, logits_of, steps, scale=DIM**-0.5):
    for seed, (policy, outcome) in enumerate(zip(policies, outcomes, strict=True)):
        chosen, plain = plain_lane(model, policy, prompt, outcome, scale)
        assert len(policy.notes) == len(outcome.events) >= 3
        assert len(chosen) == len(outcome.token_ids) == steps
        for step, logits in enumerate(chosen):
            (found,) = (made for draw, made in logits_of.items() if draw[1:] == (seed, step))
            torch.testing.assert_close(found, logits, rtol=1e-9, atol=1e-9)
        assert outcome.slots[-1] == sum(map(len, plain.held.values()))


PACKED = {name: Quantised(*name.split()) for name in ("q8_0 q8_0", "q4_0 q5_0", "q5_0 q4_0")}


@pytest.mark.parametrize(
    ("family", "routing"), sampled(["Qwen3", "Llama"], [Shared(), Offsets(), Adaptive()], of=3), ids=str
)
def test_every_step_of_packed_slots_is_that_of_plain_lists(family, routing, logits_of):
    """Keys and values in a format each, packed once, and read by attention and signals as gguf reads them; pools of
    other states beside them.
    """
    model, prompt = tiny(family, head_dim=32), outside(26, 5)
    company = [lane(keeping(Gathered(), Adaptive(), Cadence(interval=2), draw=2), 9, seed=9)]
    policies = [keeping(state, routing, Cadence(interval=3), needs=MEASURED) for state in PACKED.values()]
    lanes = [lane(policy, 12, seed=seed) for seed, policy in enumerate(policies)]
    *outcomes, _ = answer(model, prompt, [*lanes, *company], max_new_tokens=9)
    every_step(model, prompt, policies, outcomes, logits_of, 9, 32**-0.5)


@pytest.mark.parametrize(
    ("routing", "bits"), [pytest.param(Shared(), 4, marks=pytest.mark.soak), (Adaptive(), 2)], ids=str
)
def test_every_step_of_kivi_is_that_of_plain_lists(routing, bits, logits_of):
    """Groups of 32 that fill up while decoding, at different steps of lanes and heads, and again after events."""
    model = tiny("Qwen3", head_dim=32)
    budgets, prompt = (60, 75), outside(90)
    policies = [keeping(Kivi(bits), routing, Cadence(interval=12), needs=MEASURED) for _ in budgets]
    company = [lane(keeping(Gathered(), Adaptive(), Cadence(interval=2), draw=2), 9, seed=9)]
    lanes = [lane(*pair, seed=seed) for seed, pair in enumerate(zip(policies, budgets, strict=True))]
    *outcomes, _ = answer(model, prompt, [*lanes, *company], max_new_tokens=38)
    every_step(model, prompt, policies, outcomes, logits_of, 38, 32**-0.5)


@pytest.mark.parametrize("routing", sampled([Adaptive(), Shared()], of=2), ids=str)
def test_every_step_of_quest_is_that_of_the_authors_formula_in_plain_lists(routing, logits_of):
    """Groups of two query heads, lanes of different lengths, heads of different lengths in one row, pages that are not
    full; the question and the first layer read all slots.
    """
    model, prompt = tiny("Qwen3", head_dim=32), outside(41, 3)
    quest = [Quest(tokens=16, page=4, dense_layers=1), Quest(tokens=5, page=5, dense_layers=0)]
    policies = [keeping(state, routing, Cadence(interval=6), needs=MEASURED) for state in quest for _ in range(2)]
    lanes = [lane(*pair, seed=seed) for seed, pair in enumerate(zip(policies, (28, 33, 24, 26), strict=True))]
    outcomes = answer(model, prompt, lanes, max_new_tokens=15)
    every_step(model, prompt, policies, outcomes, logits_of, 15, 32**-0.5)


def test_quest_reads_as_many_slots_as_it_says():
    """Of one lane by plain lists, and never more than the full cache, whose every slot is read."""
    model, prompt = tiny("Qwen3", head_dim=32), outside(57, 3)
    policy = keeping(Quest(tokens=8, page=4, dense_layers=1), Adaptive(), Cadence(interval=5))
    (outcome,) = answer(model, prompt, [lane(policy, 30)], max_new_tokens=12)
    _, plain = plain_lane(model, policy, prompt, outcome)
    assert outcome.reads == plain.reads
    assert outcome.reads < sum(outcome.slots[-11:])
    (whole,) = answer(
        model, prompt, [lane(get("full", {"state": "quest", "state.dense_layers": 3}))], max_new_tokens=12
    )
    (full,) = answer(model, prompt, [lane(get("full"))], max_new_tokens=12)
    assert (whole.token_ids, whole.slots, whole.allocated) == (full.token_ids, full.slots, full.allocated)
    assert (whole.reads, full.reads) == (sum(full.slots[-11:]), None)


PINNING = {
    "verbatim": Verbatim(),
    "coded": Coded(),
    "syn_mem": StaticHybrid(),
    "syn_mem-2": BoundedSpans(mean="attention", length=3),
}


def test_pinned_slots_are_those_of_plain_lists_and_stay_as_they_were_written(logits_of):
    """Lines of the answer, in heads of unequal number, beside a lane without pins, after several events."""
    model, prompt = tiny("Qwen3"), outside(26, 5)
    lines = StateLines("==", asked=False)
    policies = [
        keeping(state, Adaptive(), Cadence(interval=3), needs=MEASURED, decoding=lines) for state in PINNING.values()
    ]
    company = [lane(keeping(Gathered(), Adaptive(), Cadence(interval=2), draw=2), 9, seed=9)]
    lanes = [lane(policy, 12, seed=seed) for seed, policy in enumerate(policies)]
    *outcomes, _ = answer(model, prompt, [*lanes, *company], max_new_tokens=14, temperature=1.0)
    every_step(model, prompt, policies, outcomes, logits_of, 14)
    for policy in policies:
        lasting = 0
        for view, event in policy.notes:
            pins = lines.pins(view, 11).expand(event.retained.shape)  # one slot is protected
            assert event.retained[pins].all()
            if view.weights is not None:
                assert view.weights.expand(pins.shape)[pins].eq(1).all()
            if event.merging is not None:
                own = torch.arange(pins.shape[-1]).expand(pins.shape)
                assert event.merging.targets[pins].equal(own[pins])
                others = event.merging.targets.masked_fill(event.merging.targets == own, -1)
                assert not pins.gather(-1, others.clamp(min=0))[others >= 0].any()
            lasting += int((pins.sum(-1) > 2).sum())
        assert lasting  # more than the last two slots


@dataclass(frozen=True)
class Turned(Coded):
    """A code of full rank: another basis of the same space."""

    rank: int = DIM


HARMLESS = {
    "a code of full rank": Turned(),
    "a merging that merges nothing": Gathered(lossless=True),
    "both": Gathered(rank=DIM, lossless=True),
}


@pytest.mark.parametrize("routing", [Shared(), Adaptive()], ids=str)
@pytest.mark.parametrize("state", HARMLESS.values(), ids=HARMLESS)
def test_a_state_that_loses_nothing_is_the_one_that_stores_verbatim(state, routing, logits_of):
    model, prompt = tiny("Qwen3"), outside(40, 3)
    lanes = [
        lane(keeping(own, routing, Cadence(interval=4)), 10, seed=seed) for seed, own in enumerate((state, Verbatim()))
    ]
    own, verbatim = answer(model, prompt, lanes, max_new_tokens=10, prefill_chunk=16)
    assert (own.token_ids, own.slots, own.events) == (verbatim.token_ids, verbatim.slots, verbatim.events)
    by_step = {draw[1:]: made for draw, made in logits_of.items()}
    for step in range(10):
        torch.testing.assert_close(by_step[0, step], by_step[1, step], rtol=1e-9, atol=1e-9)


def test_merging_that_merges_nothing_keeps_keys_and_values_bit_by_bit(logits_of):
    """Weights of 1 add a bias of 0, in a mask of its own."""
    lanes = [
        lane(keeping(own, None, Cadence(interval=4)), 10, seed=seed)
        for seed, own in enumerate((Gathered(mass=False, lossless=True), Verbatim()))
    ]
    answer(tiny(), outside(40, 3), lanes, max_new_tokens=10)
    by_step = {draw[1:]: made for draw, made in logits_of.items()}
    assert all(torch.equal(by_step[0, step], by_step[1, step]) for step in range(10))


@pytest.mark.parametrize("state", STATES.values(), ids=STATES)
def test_an_event_that_evicts_nothing_changes_nothing(state, logits_of):
    """Budgets of all there is, with events and without."""
    lanes = [
        lane(keeping(state, None, cadence), 100, seed=seed)
        for seed, cadence in enumerate((Cadence(interval=2, slack=False), Cadence()))
    ]
    first, second = answer(tiny(), outside(30, 3), lanes, max_new_tokens=8)
    assert first.token_ids == second.token_ids
    by_step = {draw[1:]: made for draw, made in logits_of.items()}
    assert all(torch.equal(by_step[0, step], by_step[1, step]) for step in range(8))


@dataclass(frozen=True)
class Whole(Gathered):
    """Nothing is lost: what is dropped goes on in the next slot, or in the first."""

    def merge(self, view, scores, protected, kept):
        into = torch.full(kept.shape, -1)
        positions = view.positions.expand(view.layers, view.kv_heads, -1)
        for layer, head in torch.cartesian_prod(*map(torch.arange, kept.shape[:2])).tolist():
            places = kept[layer, head].nonzero()[:, 0]
            for slot in (positions[layer, head] >= 0).nonzero()[:, 0].tolist():
                later = places[places >= slot]
                into[layer, head, slot] = later[0] if len(later) else places[-1]
        sizes = torch.zeros(kept.shape).scatter_add_(-1, into.clamp(min=0), (into >= 0).float())
        return Merging(kept, into, 1 / sizes.gather(-1, into.clamp(min=0)))


def test_weights_are_all_tokens_as_long_as_none_is_dropped():
    policy = keeping(Whole(), Adaptive(), Cadence(interval=3))
    answer(tiny(), outside(30, 4), [lane(policy, 9)], max_new_tokens=12)
    _, *later = policy.notes
    assert [len(view.token_ids) for view, _ in later] == [35, 38, 41, 44]
    for view, event in later:
        assert view.weights.sum(-1).eq(len(view.token_ids)).all()
        assert event.merging.targets.ge(0).sum(-1).eq(view.filled.sum(-1)).all()


def test_lanes_of_several_states_do_what_each_does_alone():
    def lanes():
        cadence, none = Cadence(interval=3), Cadence()
        return [
            lane(keeping(state, routing, own), 10)
            for state in (*STATES.values(), Verbatim())
            for routing, own in ((Shared(), cadence), (Adaptive(), none))
        ]

    model, prompt = tiny(), outside(30, 4)
    together = answer(model, prompt, lanes(), max_new_tokens=8)
    two_at_a_time = answer(model, prompt, lanes(), max_new_tokens=8, max_concurrent=2)
    alone = [answer(model, prompt, [own], max_new_tokens=8)[0] for own in lanes()]
    assert list(map(told, together)) == list(map(told, alone)) == list(map(told, two_at_a_time))


BYTES = {  # of one slot of one head in one layer: keys of 16 float64, values of 16 or 6, a weight of float32
    "coded": (16 + 6) * 8,
    "merged": (16 + 16) * 8 + 4,
    "merged without mass": (16 + 16) * 8 + 4,
    "merged and coded": (16 + 6) * 8 + 4,
    "verbatim": (16 + 16) * 8,
    "packed": 16 + 16,
}
ROOM = {  # 16 x 176 bytes are within 4,096, which hold 23 slots; 44 x 176 within 8,192, which hold 46
    "coded": (23, 46),
    "merged": (31, 47),
    "merged without mass": (31, 47),
    "merged and coded": (22, 45),
    "verbatim": (16, 48),
    "packed": (128, 128),
}


@pytest.mark.parametrize("name", BYTES)
def test_bytes_are_those_of_the_tensors(name, monkeypatch):
    """12 slots and 4 new tokens, and 40 that are all kept and 4, by hand: in multiples of the 4,096 bytes of
    16 slots as computed, and as many slots as these hold.
    """
    state = {**STATES, "packed": Quantised("fp8", "fp8")}.get(name, Verbatim())
    given = [lane(keeping(state), 12), lane(replace(get("full"), state=state))]
    some, whole = answer(tiny(), outside(40), given, max_new_tokens=4)
    room, large = ROOM[name]
    assert some.allocated == (LAYERS * KV_HEADS * room * BYTES[name],) * 4
    assert whole.allocated == (LAYERS * KV_HEADS * large * BYTES[name],) * 4
    assert state.slot_bytes(DIM, 8) == BYTES[name]
    # The lanes that fit into memory are counted in the same bytes.
    requests = [Request("p", outside(40), tuple(given[:1] * 9))]
    most = 2 * 5 * (12 + 4) * LAYERS * KV_HEADS * BYTES[name]
    for free, lanes in ((most, 5), (most - 2, 4)):
        monkeypatch.setattr(max_concurrent, "free_bytes", lambda device, free=free: free)
        assert max_concurrent.max_concurrent_for(tiny().network, requests, 4) == lanes


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_lane_computes_in_the_precision_of_its_network(dtype):
    """A code in bfloat16 too, whose bases may be float32; a long query goes through the fused kernel."""
    lanes = [lane(keeping(state, Adaptive(), Cadence(interval=3)), 12) for state in STATES.values()]
    outcomes = answer(tiny(dtype=dtype), outside(40, 70), lanes, max_new_tokens=6)
    exact = answer(tiny(), outside(40, 70), lanes, max_new_tokens=1)
    assert all(isinstance(outcome, Outcome) for outcome in outcomes)
    if dtype is torch.float32:
        assert [own.token_ids[0] for own in outcomes] == [own.token_ids[0] for own in exact]


def test_a_format_that_does_not_fit_the_heads_is_refused_before_a_token_is_fed():
    with pytest.raises(
        BadInput, match=r"Quantised does not fit model tiny-Llama: q4_0 packs blocks of 32 numbers, but"
    ):
        answer(tiny(), outside(9), [lane(get("full", {"state": "q4_0"}))], max_new_tokens=1)
