"""Synthetic slots: by hand, against plain loops over lists, and what they cannot stand beside is refused."""

import math
import random
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar

import pytest
import torch
from policy_prompts import Given, a_prompt, a_view

import policies
from policies import Merging, PerHead, Policy, Protect, Scores, View
from policies.contract import Segments, Trunks
from policies.signals import AttentionSums
from policies.syn_mem import (
    WINDOW,
    BoundedSpans,
    DynamicHybrid,
    PromptSpans,
    StaticHybrid,
    assign_spans,
    count_runs,
    merge_oldest,
)

FAMILY = ("syn_mem-1", "syn_mem-2", "syn_mem-3", "syn_mem-4")
VARIANTS = ("syn_mem", "syn_mem-attention", "syn_mem-massless", "syn_mem-attention-massless")
UNIFORM = (PromptSpans(), BoundedSpans(length=3), StaticHybrid(), DynamicHybrid())


def an_event(state, scores, budget, *, stored=None, weights=None, protect=None, signals=None):
    """The event of one layer. scores, stored, weights: one list for each head; -1 where no slot is."""
    policy = Policy(Given(tuple(map(tuple, scores))), routing=PerHead(), state=state, protect=protect or Protect(0, 0))
    view = View(
        torch.arange(1000 if stored else len(scores[0])),
        1,
        len(scores),
        frozenset(),
        0,
        signals or {},
        stored=None if stored is None else torch.tensor([stored]),
        weights=None if weights is None else torch.tensor([weights], dtype=torch.float32),
    )
    return policy.evict(view, budget)


def spans_of(merging: Merging, head: int = 0) -> dict[int, list[int]]:
    """By the slot that they go on in, the slots of each kept one."""
    into = merging.targets[0, head].tolist()
    return {target: [slot for slot, of in enumerate(into) if of == target] for target in sorted({*into} - {-1})}


def test_the_best_tokens_stay_and_what_is_dropped_goes_on_in_two_spans():
    """Ten slots, a budget of 6 of which a third holds spans: 0, 1, 5 and 9 stay."""
    scores = [9, 8, 1, 1, 1, 7, 1, 1, 1, 6]
    merging = an_event(StaticHybrid(share=1 / 3 + 1e-9), [scores], 6).merging
    assert spans_of(merging) == {0: [0], 1: [1], 3: [2, 3, 4], 5: [5], 7: [6, 7, 8], 9: [9]}
    assert merging.shares[0, 0, 2:5].tolist() == [1 / 3] * 3
    assert merging.retained[0, 0].nonzero().flatten().tolist() == [0, 1, 3, 5, 7, 9]


def softmax_mean(logits, values):
    weights = [math.exp(logit) for logit in logits]
    return sum(weight * value for weight, value in zip(weights, values, strict=True)) / sum(weights)


def test_equal_keys_merge_exactly_with_log_n_and_other_keys_do_not():
    """Three keys with logit 1 and values 3, 0, 0 beside one with logit 0 and value 9."""
    exact = softmax_mean([1, 1, 1, 0], [3, 0, 0, 9])
    assert exact == pytest.approx(1.873854, abs=1e-6)
    assert softmax_mean([1 + math.log(3), 0], [1, 9]) == pytest.approx(exact)
    assert softmax_mean([1, 0], [1, 9]) == pytest.approx(3.151531, abs=1e-6)
    assert softmax_mean([2, 0, 1, 0], [3, 0, 0, 9]) == pytest.approx(2.574238, abs=1e-6)


def test_a_span_stands_at_the_member_nearest_to_the_mean_position_of_its_tokens():
    """Of 2, 3 and 10 the mean is 5; with 3 tokens in the last slot 7; of 4 and 5 the first is as near."""
    for weights, stands in (([1, 1, 1], 1), ([1, 1, 3], 2), ([3, 1, 1], 1)):
        merging = an_event(StaticHybrid(share=1.0), [[1, 1, 1]], 1, stored=[[2, 3, 10]], weights=[weights]).merging
        assert merging.retained[0, 0].tolist() == [slot == stands for slot in range(3)]
        assert merging.targets[0, 0].tolist() == [stands] * 3
        total = sum(weights)
        assert merging.shares[0, 0].tolist() == pytest.approx([weight / total for weight in weights])
    assert an_event(StaticHybrid(share=1.0), [[1, 1]], 1, stored=[[4, 5]]).retained[0, 0].tolist() == [True, False]


def test_cuts_are_as_equal_as_possible_and_in_order():
    members = torch.tensor([1, 0, 1, 1, 1, 0, 1, 1, 1]).bool()
    assert assign_spans(members, torch.tensor(3)).tolist() == [0, -1, 0, 0, 1, -1, 1, 2, 2]
    assert assign_spans(members, torch.tensor(0)).tolist() == [-1] * 9
    assert assign_spans(members, torch.tensor(7)).tolist() == [0, -1, 1, 2, 3, -1, 4, 5, 6]
    for many in range(1, 20):
        for count in range(1, many + 1):
            sizes = assign_spans(torch.ones(many).bool(), torch.tensor(count)).bincount().tolist()
            assert len(sizes) == count
            assert max(sizes) - min(sizes) <= 1


def test_runs_are_counted_between_gaps():
    for row, expected in (("0110111", 2), ("1000", 1), ("0000", 0), ("10101", 3)):
        assert int(count_runs(torch.tensor([mark == "1" for mark in row]))) == expected


def test_of_too_many_units_the_oldest_two_become_one_and_then_the_next_two():
    units = torch.arange(7)
    for most, expected in (
        (6, [0, 0, 1, 2, 3, 4, 5]),
        (5, [0, 0, 1, 1, 2, 3, 4]),
        (4, [0, 0, 1, 1, 2, 2, 3]),
        (3, [0, 0, 0, 0, 1, 1, 2]),
        (1, [0] * 7),
        (9, [0, 1, 2, 3, 4, 5, 6]),
    ):
        assert merge_oldest(units, torch.tensor(7), torch.tensor(most)).tolist() == expected


def equal_parts(items: list, count: int) -> list[list]:
    """In order, sizes that differ by at most one, as a walk along the items gives them out."""
    parts, total = [[] for _ in range(count)], len(items)
    for place, item in enumerate(items):
        parts[place * count // total].append(item)
    return parts


def mean_place(members, stored, weights):
    return Fraction(sum(weights[slot] * stored[slot] for slot in members), sum(weights[slot] for slot in members))


def by_lists(state, scores, budget, stored, weights, protected, *, first) -> dict[int, list[int]] | None:
    """What a state makes of one head, with lists and fractions; as `spans_of`."""
    slots = [slot for slot, position in enumerate(stored) if position >= 0]
    best = sorted(slots, key=lambda slot: (slot not in protected, -scores[slot], slot))
    kept = best[:budget]
    free = len(kept) - len(protected)
    if isinstance(state, PromptSpans):
        if not first:
            return None
        stay = sorted(protected)
        members = [slot for slot in slots if slot not in protected]
        groups = equal_parts(members, free) if free else []
    elif isinstance(state, BoundedSpans):
        old = [slot for slot in slots if weights[slot] > 1 and slot not in protected]
        most = min(len(kept) // 4, free)
        single = [slot for slot in best if slot not in old]
        single.sort(key=lambda slot: (slot not in protected, slot not in kept))
        stay = [*single, *(slot for slot in best if slot in old)][: len(kept) - most]
        old = [slot for slot in old if slot not in stay]
        new = sorted(set(slots) - set(stay) - set(old))
        count = min(len(new), max(-(-len(new) // state.length), most - len(old)))
        units = ([[slot] for slot in old] + equal_parts(new, count)) if count else [[slot] for slot in old]
        units.sort(key=lambda unit: mean_place(unit, stored, weights))
        while len(units) > most > 0:
            pairs = min(len(units) - most, len(units) // 2)
            joined = [units[2 * pair] + units[2 * pair + 1] for pair in range(pairs)]
            units = joined + units[2 * pairs :]
        groups = units if most else []
    else:
        if isinstance(state, StaticHybrid):
            places = len(kept) // 4
        else:
            dropped = [slot in kept for slot in slots]
            gaps = sum(
                not now and (before is None or before) for before, now in zip([None, *dropped], dropped, strict=False)
            )
            places = min(len(kept) // 2, gaps)
        places = min(places, free)
        stay = kept[: len(kept) - places]
        members = sorted(set(slots) - set(stay))
        groups = equal_parts(members, places) if places else []
    found = {slot: [slot] for slot in stay}
    for group in filter(None, groups):
        centre = mean_place(group, stored, weights)
        stands = min(sorted(group), key=lambda slot: (abs(stored[slot] - centre), stored[slot]))
        found[stands] = sorted(group)
    return dict(sorted(found.items()))


@pytest.mark.parametrize("state", UNIFORM, ids=lambda state: type(state).__name__)
def test_events_are_those_of_plain_lists(state):
    """Heads that hold different slots of different weights, some of them protected, budgets from 1 on."""
    drawn = random.Random(7)
    for trial in range(60):
        first = trial % 3 == 0
        longest = drawn.randint(4, 40)
        lengths = [longest, longest if first else drawn.randint(3, longest)]
        stored, weights, scores = [], [], []
        for length in lengths:
            own = list(range(length)) if first else sorted(drawn.sample(range(900), length))
            stored.append(own + [-1] * (longest - length))
            heavy = [drawn.choice([1, 1, 1, 2, 5]) if not first else 1 for _ in own]
            weights.append(heavy + [1] * (longest - length))
            scores.append([float(drawn.randint(0, 6)) for _ in range(longest)])
        recent = drawn.randint(0, 2)
        budget = drawn.randint(max(1, recent), min(lengths))
        event = an_event(
            state,
            scores,
            budget,
            stored=None if first else stored,
            weights=None if first else weights,
            protect=Protect(0, recent),
        )
        if budget >= longest:
            assert event.merging is None
            continue
        for head, length in enumerate(lengths):
            protected = set(range(length - recent, length))
            expected = by_lists(state, scores[head], budget, stored[head], weights[head], protected, first=first)
            if expected is None:
                assert event.merging is None
                continue
            assert spans_of(event.merging, head) == expected
            assert event.merging.retained[0, head].sum() == event.retained[0, head].sum() == budget
            check_shares(event.merging, head, expected, weights[head])


def check_shares(merging, head, spans, weights):
    for members in spans.values():
        total = sum(weights[slot] for slot in members)
        for slot in members:
            assert merging.shares[0, head, slot].item() == pytest.approx(weights[slot] / total)


@pytest.mark.parametrize("state", UNIFORM[1:], ids=lambda state: type(state).__name__)
def test_no_token_is_ever_dropped_from_event_to_event(state):
    """Weights are added up as the engine does; between two events 10 tokens come."""
    drawn, stored, weights, seen = random.Random(1), list(range(60)), [1.0] * 60, 60
    for step in range(8):
        scores = [drawn.random() for _ in stored]
        event = an_event(state, [scores], 24, stored=[stored] if step else None, weights=[weights] if step else None)
        spans = spans_of(event.merging)
        weights = [sum(weights[slot] for slot in members) for members in spans.values()]
        stored = [stored[slot] for slot in spans]
        assert stored == sorted(stored)
        assert len(stored) == 24
        assert sum(weights) == seen
        stored, weights = stored + list(range(seen, seen + 10)), weights + [1.0] * 10
        seen += 10


def test_bounded_spans_grow_with_age_and_stay_bounded():
    """At most a quarter of 40 slots hold spans, and the oldest of them hold the most tokens."""
    stored, weights, seen = list(range(100)), [1.0] * 100, 100
    for step in range(6):
        scores = [float(position) for position in stored]  # the latest stay
        event = an_event(
            BoundedSpans(), [scores], 40, stored=[stored] if step else None, weights=[weights] if step else None
        )
        spans = spans_of(event.merging)
        weights = [sum(weights[slot] for slot in members) for members in spans.values()]
        heavy = [weight for weight in weights if weight > 1]
        assert len(heavy) <= 10
        stored = [stored[slot] for slot in spans] + list(range(seen, seen + 16))
        weights, seen = weights + [1.0] * 16, seen + 16
    assert heavy[0] > 4 * heavy[-1]


def attention_signals(rows: list[list[float]]) -> dict:
    """What the queries of a layer gave the slots: one row for each query head."""
    return {AttentionSums(WINDOW): (torch.tensor(rows),)}


def test_attention_weighs_the_members_of_a_span_by_what_the_query_heads_of_a_group_give_them():
    """Two query heads a KV head. Where nothing is attended to, tokens count."""
    received = attention_signals([[0.4, 0.0, 0, 0], [0.0, 0.2, 0, 0], [0.0, 0, 0, 0], [0.0, 0, 0, 0]])
    state = StaticHybrid(mean="attention", share=1.0)
    event = an_event(
        state, [[1, 1, 1, 1]] * 2, 2, stored=[[0, 1, 2, 3]] * 2, weights=[[1, 1, 1, 3]] * 2, signals=received
    )
    assert event.merging.targets[0].tolist() == [[0, 0, 3, 3]] * 2
    expected = [[2 / 3, 1 / 3, 1 / 4, 3 / 4], [1 / 2, 1 / 2, 1 / 4, 3 / 4]]
    assert event.merging.shares[0].tolist() == [pytest.approx(row) for row in expected]


def test_heads_of_one_set_share_spans_and_weigh_them_each_by_its_own_attention():
    policy, prompt = policies.get("syn_mem-attention"), a_prompt(90)
    view = a_view(prompt, [policy])
    event = policy.evict(view, 40)
    plain = policies.get("syn_mem").evict(view, 40)
    assert torch.equal(event.merging.targets, plain.merging.targets)
    assert torch.equal(event.merging.targets, event.merging.targets[:1, :1].expand_as(event.merging.targets))
    assert event.merging.shares.shape == (2, 2, 90)
    sums = view.signals[AttentionSums(WINDOW)]
    for layer in range(2):
        for head in range(2):
            received = sums[layer][2 * head : 2 * head + 2].mean(0).tolist()
            for target in event.retained[layer, head].nonzero().flatten().tolist():
                members = (event.merging.targets[layer, head] == target).nonzero().flatten().tolist()
                total = sum(received[slot] for slot in members)
                own = event.merging.shares[layer, head, members].tolist()
                if len(members) > 1:
                    assert own == pytest.approx([received[slot] / total for slot in members], rel=1e-5)
                else:
                    assert own == [1]


def test_protected_slots_stay_alone():
    scores = [[float(slot) for slot in range(30)]]
    for state in UNIFORM:
        spans = spans_of(an_event(state, scores, 12, protect=Protect(3, 4)).merging)
        for slot in (*range(3), *range(26, 30)):
            assert spans[slot] == [slot]
        assert len(spans) == 12
    # Where nothing else has a place nothing is merged, and what is dropped is dropped.
    spans = spans_of(an_event(StaticHybrid(), scores, 7, protect=Protect(3, 4)).merging)
    assert list(spans) == [*range(3), *range(26, 30)]


def test_each_gate_differs_from_1d_in_its_state_alone():
    parent = policies.get("1d")
    for name in (*FAMILY, *VARIANTS):
        assert policies.diff(policies.get(name), parent).keys() == {"state"}
    kinds = [type(policies.get(name).state) for name in FAMILY]
    assert kinds == [PromptSpans, BoundedSpans, StaticHybrid, DynamicHybrid]
    assert policies.get("syn_mem") == policies.get("syn_mem-3")
    settings = [(policies.get(name).state.mean, policies.get(name).state.mass) for name in VARIANTS]
    assert settings == [("uniform", True), ("attention", True), ("uniform", False), ("attention", False)]
    assert {policies.get(name).state for name in VARIANTS} == {
        StaticHybrid(mean, mass) for mean in ("uniform", "attention") for mass in (True, False)
    }


def test_a_slot_holds_its_number_of_tokens_in_four_bytes():
    for state in UNIFORM:
        assert state.merges
        assert state.codec({}) is None
        assert state.slot_bytes(128, 2) == 516


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("epikv", "a slot of StaticHybrid represents several tokens, but HiddenChange is defined for single tokens"),
        ("kv-key", "but ChannelVariances is defined for single tokens; choose another state, or a scoring of slots"),
        ("thinkv", "but Sparsity is defined for single tokens"),
        ("raas", "state: Stamps of slots that StaticHybrid merges do not add up to that of their mean"),
        ("crystal-kv", "state: References of slots"),
        ("crystal", "state: CoAttention of slots"),
        ("crystal-still", "state: "),
    ],
)
def test_what_a_merged_slot_cannot_have_is_refused_by_name(name, said):
    with pytest.raises(ValueError, match=said) as refused:
        policies.get(name, state=StaticHybrid())
    assert "\n" not in str(refused.value)


def test_what_a_merged_slot_can_have_is_not_refused():
    """Sums over queries add up; the last queries, keys and values are looked at anew."""
    for name in ("h2o", "snapkv", "r-kv", "knorm", "1d_div", "full", "longflow", "tova"):
        assert policies.get(name, state=StaticHybrid()).state == StaticHybrid()


@dataclass(frozen=True)
class Longest(Given):
    """A scoring in units."""

    longest: ClassVar[int] = 3


@dataclass(frozen=True)
class More(Given):
    """Scores that come with more than a number of each slot."""

    more: str = ""

    def score(self, view: View) -> Scores:
        none = torch.zeros(0)
        values = {
            "trunks": Trunks((), none, none),
            "memory": view,
            "segments": Segments(torch.zeros(1, 1, view.slots).long(), none.long(), 1),
        }
        return super().score(view)._replace(**{self.more: values[self.more]})


def test_units_and_memories_are_refused_also_where_only_the_scores_tell():
    values = ((1.0, 2, 3, 4),)
    with pytest.raises(ValueError, match="StaticHybrid merges single slots, but Longest keeps units of several"):
        Policy(Longest(values), state=StaticHybrid())
    view = View(torch.arange(4), 1, 1, frozenset(), 0, {})
    for more in ("trunks", "memory", "segments"):
        policy = Policy(More(values, more=more), state=StaticHybrid(share=0.5), protect=Protect(0, 0))
        with pytest.raises(ValueError, match=f"state: merges slots, but the scores have {more}"):
            policy.evict(view, 2)


def test_an_event_that_drops_nothing_merges_nothing():
    for name in (*FAMILY, *VARIANTS):
        policy = policies.get(name)
        view = a_view(a_prompt(50), [policy])
        assert policy.evict(view, 50).merging is None
        assert replace(policy, state=policies.get("1d").state).evict(view, 50).retained.all()
