"""Lanes that are asked together keep, hold and remember what each of them does alone, bit for bit."""

import copy
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import ClassVar

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sampled import sampled
from tiny_networks import DEPTH, answer, competing, lane, noted, outside, tiny

import policies
from policies import AttentionSignal, Cadence, PerHead, Policy, Protect, Schedule, Scores, Shared
from policies.batched import can_batch, ignores_seed, is_batchable
from policies.blockwise import Blockwise
from policies.observer import observe
from policies.signals import Norms
from policies.streaming import Recency
from protocol import engine
from protocol.engine import eviction, slots
from protocol.engine.own_parts import iterate_tensors, map_tensors
from protocol.engine.run_types import LaneFailure, Outcome, Request

SLACK, EXACT = Cadence(interval=4), Cadence(interval=3, slack=False)
STACKED = [
    "streaming",
    "h2o",
    "snapkv",
    "tova",
    "knorm",
    "keydiff",
    "chunkkv",
    "chunkkv-20",
    "1d",
    "1d_div",
    "1d_div-1.0",
    "1d_div-1.5",
    "q_stats",
    "schedule-front",
    "schedule-back",
    "schedule-inverted",
    "state_ask",
    "snapkv_with_window",
    "streamingllm-rkv",
    "raas",
    "longflow",
    "chunkkv-cumulative",
    "h2o-window",
    "keydiff-blocks",
    "1d-per-layer",
    "1d-per-head",
]
"""Those of the catalogue that are asked together; the others are asked one by one."""


def test_what_is_asked_together_is_told():
    """A part that loses its word is slower and nothing else, so that only this notices."""
    stacked = [name for name in policies.names() if can_batch(policies.get(name))]
    assert stacked == STACKED


def ran(model, lanes, **settings):
    """Two problems of equal length and one of another, each with all of the lanes."""
    requests = [
        Request(f"p{number}", outside(length, 2, seed=number), tuple(lanes))
        for number, length in enumerate((70, 70, 66))
    ]
    return engine.run(model, requests, temperature=0.7, **settings)


def told(run):
    found = [one for each in run.answers for one in each.outcomes]
    return [one._replace(seconds=0) if isinstance(one, Outcome) else one for one in found]


def compared(counts):
    """`Events.several`, held against each lane alone: what is kept, and what is left of its memory."""

    def several(self, due):
        found = self.decide_group(due)
        positions = found.positions.gather(-1, found.order)
        for lane_, each in enumerate(due):
            alone = self.decide_lane(each)
            assert torch.equal(found.masks[lane_], alone.event.retained)
            assert alone.event[1:] == (None, None, None)
            assert torch.equal(found.positions[lane_], alone.positions)
            memory = copy.deepcopy(each.memory)
            memory.compact(alone.event, alone.positions, each.row.n_fed, alone.event.retained.sum(-1))
            assert torch.equal(memory.positions, positions[lane_])
            assert memory.sums.keys() == found.sums.keys()
            for signal, state in memory.sums.items():
                own = map_tensors(lambda tensor, at=lane_: tensor[at], found.sums[signal])
                pairs = zip(iterate_tensors(state), iterate_tensors(own), strict=True)
                assert all(torch.equal(one, other) for one, other in pairs)
        counts.update(each.row.lane.key for each in due)
        return found

    return several


def of_catalogue(cadence):
    for name in STACKED:
        policy = policies.get(name)
        every_signal = (signal for signal in policy.needs if isinstance(signal, AttentionSignal))
        if policy.evicts and all(signal.carried for signal in every_signal):
            own = replace(policy.cadence, interval=4) if isinstance(policy.cadence, Schedule) else cadence
            yield name, competing(replace(policy, cadence=own))


@pytest.mark.parametrize(("part", "cadence"), sampled(range(2), [SLACK, EXACT], of=2))
def test_every_policy_finds_together_what_each_lane_finds_alone(monkeypatch, part, cadence):
    """Seeds of one text, texts of one length and of another: budgets above every window."""
    model, named = tiny("Qwen2", torch.float32, num_hidden_layers=DEPTH), list(of_catalogue(cadence))[part::2]
    lanes = [engine.Lane(name, policy, 50, seed) for name, policy in named for seed in (0, 1)]
    counts = Counter()
    monkeypatch.setattr(eviction.EvictingBatch, "try_group", compared(counts))
    found = ran(model, lanes, max_new_tokens=12)
    # Budgets that rise faster than the answer leave nothing to evict.
    assert {name for name, _ in named} - {"schedule-back"} == counts.keys()
    monkeypatch.setattr(eviction.EvictingBatch, "try_group", lambda self, due: None)
    assert told(found) == told(ran(model, lanes, max_new_tokens=12))
    assert all(isinstance(one, Outcome) for one in told(found))


@dataclass(frozen=True)
class Fussy(Recency):
    """Refuses a lane once it has seen so many tokens; with `loud`, in words."""

    most: int = 10**6
    loud: bool = False
    stacks: ClassVar[bool] = True

    def score(self, view):
        slots = super().score(view).slots
        over = torch.as_tensor(view.token_count) >= self.most
        if self.loud and over.any():
            raise RuntimeError(f"at most {self.most}")
        return Scores(slots.masked_fill(over, torch.nan))


@pytest.mark.parametrize(
    ("loud", "reason"),
    [(False, "scores must be finite: layer 0, head 0, slot 0 is nan"), (True, "RuntimeError: at most 74")],
)
def test_a_lane_that_fails_in_company_fails_alone_and_in_its_own_words(loud, reason):
    """Texts of 72, 72 and 68 tokens: at the event of the second token the last one has seen 70."""
    policy = Policy(Fussy(most=74, loud=loud), cadence=SLACK, protect=Protect(0, 0))
    assert can_batch(policy)
    found = told(ran(tiny(dtype=torch.float32), [lane(policy, 60, seed=0), lane(policy, 60, seed=1)], max_new_tokens=6))
    assert [isinstance(one, LaneFailure) for one in found] == [True] * 4 + [False] * 2
    assert {one.reason for one in found[:4]} == {reason}
    plain = replace(policy, scoring=Recency())
    assert (
        found[4:]
        == told(ran(tiny(dtype=torch.float32), [lane(plain, 60, seed=s) for s in (0, 1)], max_new_tokens=6))[4:]
    )


@dataclass(frozen=True)
class Backwards(Recency):
    """Inherits that it stacks, and does other things: it was written for one lane."""

    def score(self, view):
        return Scores(-view.positions[:1, :1].float())


def test_what_a_class_inherits_is_not_its_word():
    assert is_batchable(Recency())
    assert not is_batchable(Backwards())
    policy = Policy(Backwards(), cadence=SLACK, protect=Protect(0, 0))
    assert not can_batch(policy)
    model = tiny(dtype=torch.float32)
    first, second = answer(model, outside(40), [lane(policy, 20, seed=s) for s in (0, 1)], max_new_tokens=9)
    assert first.events == second.events == ((0, 240, 120), (4, 144, 120), (8, 144, 120))


def test_who_is_watched_is_told_of_in_company_and_keeps_what_it_kept():
    model, notes = tiny(dtype=torch.float32), {0: [], 1: []}
    policy = policies.get("h2o", cadence=SLACK)

    def watching(seed):
        return observe(policy, lambda view, budget, event: notes[seed].append((view, budget, event.retained)))

    lanes = [
        lane(policy, 20, seed=0),
        lane(watching(0), 20, seed=0),
        lane(policy, 20, seed=1),
        lane(watching(1), 20, seed=1),
    ]
    found = [one._replace(seconds=0) for one in answer(model, outside(40), lanes, max_new_tokens=9, temperature=0.7)]
    assert found[0] == found[1] != found[2] == found[3]
    for seed, own in notes.items():
        assert [budget for _, budget, _ in own] == [20] * 3
        for view, _, kept in own[1:]:
            assert (
                tuple(view.token_ids.tolist()) == (outside(40).context + found[2 * seed].token_ids)[: view.token_count]
            )
            assert torch.equal(kept, policy.keep(view, 20))
    assert [view.token_count for view, *_ in notes[0]] == [40, 44, 48]


def test_seeds_share_the_first_event_of_a_policy_that_draws_nothing():
    assert ignores_seed(policies.get("h2o"))
    assert not ignores_seed(policies.get("random"))
    model, prompt = tiny(dtype=torch.float32), outside(200)
    for name in ("random", "snapkv"):
        policy = policies.get(name, cadence=SLACK)
        lanes = [lane(policy, 150, seed=seed) for seed in (0, 1)]
        together_ = answer(model, prompt, lanes, max_new_tokens=9, temperature=0.7)
        alone = [answer(model, prompt, [one], max_new_tokens=9, temperature=0.7)[0] for one in lanes]
        assert [(one.token_ids, one.state_bytes) for one in together_] == [
            (one.token_ids, one.state_bytes) for one in alone
        ]


def cadences():
    interval, slack = st.integers(1, 9), st.booleans()
    plain = [st.builds(kind, interval=interval, slack=slack) for kind in (Cadence, Blockwise)]
    loads = {"load": st.sampled_from(["front", "back", "inverted"]), "amplitude": st.floats(0.01, 0.99)}
    rounds = st.sampled_from([2, 4, 8])
    return st.one_of(*plain, st.builds(Schedule, interval=interval, slack=slack, rounds=rounds, **loads))


def fired(cadence, budget, slots, query, first, foretold):
    """(step, slots of all heads) of each event of six heads that hold `slots` in all; asked at every step
    from the `first` on, or only when what the cadence foretells is over.
    """
    heads, until, found = 6, 0, []
    for step in range(0 if query else 1, 50):
        slots += heads * (query if step == 0 else 1)
        if step < max(first, until):
            continue
        granted = cadence.budget(budget, step)
        if cadence.due(step, slots / heads, granted):
            found.append((step, slots))
            slots = heads * granted
        elif foretold:
            until = cadence.next_due(step, slots / heads, budget)
            assert until > step
    return found


@given(cadences(), st.integers(1, 40), st.integers(1, 300), st.integers(0, 20), st.integers(0, 6))
@settings(max_examples=150, deadline=None)
def test_events_that_are_foretold_are_those_of_who_is_asked_at_every_step(cadence, budget, slots, query, first):
    assert eviction.predicts_next_due(type(cadence))
    assert fired(cadence, budget, slots, query, first, True) == fired(cadence, budget, slots, query, first, False)


@pytest.mark.parametrize("first", [0, 1, 6])
@pytest.mark.parametrize("query", [0, 3])
def test_the_engine_fires_what_it_foretells_as_if_it_asked_at_every_step(monkeypatch, first, query):
    model, plain = tiny(dtype=torch.float32, num_hidden_layers=1), policies.get("knorm")
    cadences = (SLACK, EXACT, Cadence(interval=1), Schedule(interval=3, load="inverted", rounds=2))
    given = [
        lane(replace(plain, cadence=own, protect=Protect(0, 0)), budget) for own in cadences for budget in (20, 33)
    ]

    def every_event():
        found = answer(model, outside(30, query), given, max_new_tokens=12, first_event=first)
        return [one.events for one in found]

    foretold = every_event()
    monkeypatch.setattr(eviction, "predicts_next_due", lambda kind: False)
    assert every_event() == foretold
    assert len(set(foretold)) > 4


@dataclass(frozen=True)
class Sometimes(Cadence):
    """Fires at steps of its own, which what it inherits does not foretell."""

    def due(self, step, held, budget):
        return step in (2, 3, 7) and held > budget


def test_a_cadence_that_fires_otherwise_is_asked_at_every_step():
    assert not eviction.predicts_next_due(Sometimes)
    policy = noted(Recency(), Shared(), Sometimes(interval=4))
    (outcome,) = answer(tiny(), outside(40), [lane(policy, 20)], max_new_tokens=9)
    assert [step for step, *_ in outcome.events] == [0, 2, 3, 7]


def test_heads_that_hold_different_numbers_of_slots_are_asked_alone():
    """Their lanes share a pool all the same."""
    policy = policies.get("knorm", routing=policies.Adaptive(), cadence=SLACK)
    assert not can_batch(policy)
    assert can_batch(replace(policy, routing=PerHead()))


def kept_alike(monkeypatch, *policies_, model=None, seeds=(0, 1)):
    """Whether lanes hold, keep and say the same whether they are asked together or one by one."""
    model = model or tiny(dtype=torch.float32)
    lanes = [engine.Lane(f"{at}", own, 20, seed) for at, own in enumerate(policies_) for seed in seeds]
    in_company = told(ran(model, lanes, max_new_tokens=8))
    with monkeypatch.context() as patch:
        patch.setattr(eviction.EvictingBatch, "try_group", lambda self, due: None)
        assert told(ran(model, lanes, max_new_tokens=8)) == in_company
    assert all(isinstance(one, Outcome) and len(one.events) > 2 for one in in_company)


@dataclass(frozen=True)
class OfOneHead:
    """Protects the oldest slots of the last head of the last layers, and says nothing of lanes."""

    def slots(self, filled, budget, *, decoding, prompt=None):
        protected = torch.zeros_like(filled)
        protected[-1:, -1:, :3] = True
        return protected & filled


def test_a_protection_that_tells_heads_apart_is_given_every_head(monkeypatch):
    """All heads hold the same slots, which are looked at once where nobody tells them apart."""
    policy = Policy(Recency(), cadence=SLACK, routing=PerHead(), protect=OfOneHead())
    assert can_batch(policy)
    assert not ignores_seed(policy)
    kept_alike(monkeypatch, policy)


@dataclass(frozen=True)
class OfTheFirstLane(Recency):
    """Says that it stacks, and has no axis for lanes."""

    needs: ClassVar = frozenset({Norms()})
    stacks: ClassVar[bool] = True

    def score(self, view):
        key = view.signals[Norms()][0].key
        return Scores(-key.view(-1, *key.shape[-2:])[:1])


def test_scores_without_lanes_are_not_spread_over_all_of_them(monkeypatch):
    policy = Policy(OfTheFirstLane(), cadence=SLACK, protect=Protect(0, 0))
    assert can_batch(policy)
    kept_alike(monkeypatch, policy)


@dataclass(frozen=True)
class Recalls(Recency):
    """Has a memory after the first event, by which it turns round, and none later."""

    stacks: ClassVar[bool] = True

    def retain(self, kept):
        return self

    def score(self, view):
        sign = 1.0 if view.memory is None else -1.0
        return Scores(sign * view.positions.float(), memory=self if view.stored is None else None)


def test_a_lane_whose_policy_remembers_is_asked_alone(monkeypatch):
    kept_alike(monkeypatch, Policy(Recalls(), cadence=SLACK, protect=Protect(0, 0)))


@dataclass(frozen=True)
class Signed(Recency):
    """Equal to one of the other sign."""

    sign: float = field(default=1.0, compare=False)
    stacks: ClassVar[bool] = True

    def score(self, view):
        return Scores(self.sign * view.positions.float())


@dataclass
class Unhashed:
    """Two of them are equal, and none has a hash."""

    needs: ClassVar = frozenset()
    stacks: ClassVar[bool] = True

    def score(self, view):
        return Scores(view.positions.float())


def test_parts_that_equality_does_not_tell_apart_are_asked_alone(monkeypatch):
    one, other = (Policy(Signed(sign), cadence=SLACK, protect=Protect(0, 0)) for sign in (1.0, -1.0))
    assert one == other
    kept_alike(monkeypatch, one, other)
    kept_alike(monkeypatch, replace(one, scoring=Unhashed()))


@dataclass(frozen=True)
class Short(Recency):
    """Of memory, for several lanes."""

    stacks: ClassVar[bool] = True

    def score(self, view):
        if view.batch is not None:
            raise MemoryError("for several lanes")
        return super().score(view)


def test_what_the_machine_lacks_and_what_is_wrong_here_breaks_the_run(monkeypatch):
    lanes = [lane(Policy(Short(), cadence=SLACK, protect=Protect(0, 0)), 20, seed) for seed in (0, 1)]
    with pytest.raises(MemoryError, match="for several lanes"):
        ran(tiny(dtype=torch.float32), lanes, max_new_tokens=6)
    lanes = [lane(policies.get("knorm", cadence=SLACK), 20, seed) for seed in (0, 1)]
    monkeypatch.setattr(slots.Pool, "gather_lanes", lambda self, *given: given[99])
    with pytest.raises(IndexError):
        ran(tiny(dtype=torch.float32), lanes, max_new_tokens=6)
