"""Policies of long answers in the engine: what was calibrated, budgets by round, pinned and short prompts."""

import pytest
import torch
from plain_forward import of_lane, plain_forward
from sampled import sampled
from tiny_networks import DIM, HEADS, answer, lane, outside, tiny, watched

import policies
from policies import Cadence, Calibrated, Schedule, pin_prompt
from policies.selection import select_diverse, signature
from policies.signals import Keys
from policies.triattention import OFFSETS, expected_logits, max_standard_scores
from protocol.engine import Outcome
from protocol.formats.refusals import BadInput

EVERY_4 = Cadence(interval=4)


@pytest.mark.parametrize("family", ["Llama", "Qwen2"])
@pytest.mark.parametrize("query", [0, 3])
def test_1d_and_1d_div_keep_at_every_event_what_a_plain_forward_says(family, query, device):
    model, prompt = tiny(family, device=device), outside(30, query)
    for name, weight in (("1d", 0.0), ("1d_div", 0.5)):
        policy = watched(name, cadence=EVERY_4)
        (outcome,) = answer(model, prompt, [lane(policy, 12)], max_new_tokens=15)
        text = prompt.context + prompt.query + outcome.token_ids[:-1]
        plain = plain_forward(model.network, text, of_lane(policy, len(text)).allowed)
        assert len(policy.notes) >= 4
        for view, kept in policy.notes:
            held = view.positions[0, 0]
            keys, values = (part[:, :, held] for part in (plain.keys, plain.values))
            raw = expected_logits(keys, model.statistics["text"], len(view.token_ids), OFFSETS)
            expected = select_diverse(max_standard_scores(raw.flatten(0, 1)), signature(values), 12, weight)
            assert kept[0, 0].nonzero().flatten().tolist() == expected.tolist()
            assert (kept == kept[:1, :1]).all()


def test_a_policy_is_given_the_statistics_that_it_names_and_no_others():
    model = tiny()
    asked = {"1d": {"text"}, "q_stats": {"traces"}, "variant_b": {"text", "traces"}, "knorm": set()}
    lanes = {name: watched(name, cadence=EVERY_4) for name in asked}
    answer(model, outside(30), [lane(policy, 12) for policy in lanes.values()], max_new_tokens=10)
    for name, policy in lanes.items():
        assert len(policy.notes) >= 2
        for view, _ in policy.notes:
            found = {signal.name: view.signals[signal] for signal in view.signals if type(signal) is Calibrated}
            assert found.keys() == asked[name]
            assert all(found[each] is model.statistics[each] for each in found)
            assert set(view.signals) == policy.needs


def test_keys_are_those_that_are_stored_at_the_time():
    policy = watched("1d", cadence=EVERY_4)
    noted = []

    class Copying(type(policy)):
        def evict(self, view, budget):
            noted.append([keys.clone() for keys in view.signals[Keys()]])
            return super().evict(view, budget)

    policy = Copying(**{field: getattr(policy, field) for field in policy.__dataclass_fields__})
    model, prompt = tiny(), outside(20)
    (outcome,) = answer(model, prompt, [lane(policy, 9)], max_new_tokens=12)
    text = prompt.context + outcome.token_ids[:-1]
    plain = plain_forward(model.network, text, of_lane(policy, len(text)).allowed)
    for (view, _), keys in zip(policy.notes, noted, strict=True):
        torch.testing.assert_close(torch.stack(keys), plain.keys[:, :, view.positions[0, 0]])


def test_statistics_that_are_not_there_are_refused_before_anything_runs():
    model = tiny()._replace(statistics={"text": tiny().statistics["text"]})
    fix = "run: kv-prereg calibrate tiny-Llama traces"
    for name in ("q_stats", "variant_b"):
        with pytest.raises(BadInput, match=rf"model tiny-Llama: lane a lane needs 'traces', .*{fix}"):
            answer(model, outside(30), [lane(policies.get(name), 12)], max_new_tokens=2)
    (outcome,) = answer(model, outside(30), [lane(policies.get("1d"), 12)], max_new_tokens=2)
    assert isinstance(outcome, Outcome)


def test_how_many_tokens_are_the_prompt_s_is_told_at_every_event():
    policy = watched("1d", cadence=EVERY_4)
    answer(tiny(), outside(30, 5), [lane(policy, 12)], max_new_tokens=10)
    assert [view.prompt for view, _ in policy.notes] == [30] + [35] * (len(policy.notes) - 1)


@pytest.mark.parametrize(
    ("load", "kept"),
    [
        # A budget of 8 in four rounds of three tokens, half of it up and down: 12, 9, 6, 4 or the reverse.
        ("front", [12, 9, 6, 4]),
        ("back", [4, 6, 9, 12]),
        ("inverted", [4, 4, 12, 12]),
    ],
)
@pytest.mark.parametrize("context", [30, 5])
def test_every_round_leaves_its_own_budget(load, kept, context):
    cadence = Schedule(interval=3, load=load, rounds=4)
    policy = watched("schedule-front", cadence=cadence)
    (outcome,) = answer(tiny(), outside(context), [lane(policy, 8)], max_new_tokens=18)
    holds = min(context, kept[0])
    held, events = [holds], [(0, context, holds)]
    for step in range(1, 18):
        holds += 1
        budget = kept[min(step // 3, 3)]
        if step % 3 == 0 and holds > budget:
            events.append((step, holds, budget))
            holds = budget
        held.append(holds)
    assert [slots / HEADS for slots in outcome.slots] == held
    assert [(step, a / HEADS, b / HEADS) for step, a, b in outcome.events] == events
    assert all(mine <= room for mine, room in zip(held, slots_of(outcome.allocated), strict=True))


def test_a_lane_has_room_for_the_largest_of_its_budgets():
    """Kept down to 20 slots, it grows past the registered 40 until it holds more than 60."""
    policy = watched("schedule-back", cadence=Schedule(interval=4, load="back", rounds=4))
    (outcome,) = answer(tiny(), outside(50), [lane(policy, 40)], max_new_tokens=60)
    assert [slots / HEADS for slots in outcome.slots[:45]] == [*range(20, 64), 60]
    assert outcome.events == ((0, HEADS * 50, HEADS * 20), *((s, HEADS * 64, HEADS * 60) for s in (44, 48, 52, 56)))


def slots_of(allocated):
    return [taken / (2 * HEADS * DIM * 8) for taken in allocated]


@pytest.mark.parametrize(  # in the window of 32, below the budget, above it
    ("context", "budget"), sampled([8, 32, 100, 150], [64, 128], of=2)
)
def test_budgets_of_64_and_128_hold_while_decoding_whatever_the_prompt(budget, context):
    model = tiny(dtype=torch.float32)
    names = ("h2o", "streaming", "snapkv", "snapkv_with_window", "1d", "1d_div")
    watchers = [watched(name, cadence=Cadence(interval=16)) for name in names]
    new = max(budget - context, 0) + 3 * 16 + 1  # the last is not fed: three events after the first
    lanes = [lane(watcher, budget) for watcher in watchers]
    outcomes = answer(model, outside(context), lanes, max_new_tokens=new)
    for name, policy, outcome in zip(names, watchers, outcomes, strict=True):
        assert isinstance(outcome, Outcome), outcome
        assert max(outcome.slots) < HEADS * max(budget + 16, min(context, budget) + 1)
        assert len([step for step, _, _ in outcome.events if step]) == 3
        assert all(after == HEADS * budget for step, _, after in outcome.events if step)
        for view, kept in policy.notes[1:]:
            positions = view.positions.expand(kept.shape)[kept].view(-1, budget)
            if name in ("snapkv", "snapkv_with_window"):
                window = 32 if name == "snapkv" else 8
                last = torch.arange(len(view.token_ids) - window, len(view.token_ids))
                assert (positions[:, -window:] == last).all()
            if name == "h2o":
                last = torch.arange(len(view.token_ids) - budget // 2, len(view.token_ids))
                assert (positions[:, -(budget // 2) :] == last).all()
            if name == "streaming":
                new = torch.arange(len(view.token_ids) - budget + 4, len(view.token_ids))
                assert (positions == torch.cat([torch.arange(4), new])).all()


def test_a_pinned_prompt_outlives_every_event_and_a_larger_one_fails_its_lane():
    policy = pin_prompt(watched("1d_div", cadence=EVERY_4))
    small, large = lane(policy, 20), lane(policy, 12)
    kept, failed = answer(tiny(), outside(14, 3), [small, large], max_new_tokens=30)
    assert isinstance(kept, Outcome)
    assert failed.reason.startswith("budget of 12 slots is below the 14 protected slots of Pinned")
    later = [(view, kept) for view, kept in policy.notes if view.stored is not None]
    assert len(later) >= 4
    for view, kept in later:
        assert (view.positions.expand(kept.shape)[kept].view(HEADS, -1)[:, :17] == torch.arange(17)).all()
    # A prompt that fits the budget only without its query fails at the first event after the query.
    (failed,) = answer(tiny(), outside(14, 3), [lane(policy, 16)], max_new_tokens=30)
    assert failed.reason.startswith("budget of 16 slots is below the 17 protected slots of Pinned")
