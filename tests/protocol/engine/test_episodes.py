"""A cache for each episode of a text: all of them are filled, one answers, and the others are counted."""

import pytest
import torch
from plain_forward import of_lane, plain_forward
from sampled import sampled
from test_run_types import told
from tiny_networks import DIM, HEADS, LAYERS, Noise, all_kept, answer, drawn, lane, noted, outside, tiny

from policies import Blockwise, Cadence
from policies.epicache import Episodic, PatchedPrompt, epicache
from protocol.engine import LaneFailure, Outcome, Prompt
from protocol.formats.refusals import BadInput

SLOT = 2 * DIM * 8
BLOCK, BUDGET = 12, 10
POLICY = epicache()


def a_text():
    """48 tokens, of which each sixth ends a sentence."""
    text = list(outside(48, seed=5).context)
    text = [8 if token == 7 else token for token in text]
    text[5::6] = [7] * 8
    return tuple(text)


def episodic(**settings):
    cadence = Episodic(**{"block": BLOCK, "episodes": 3, "window": 2, "medoids": 1, **settings})
    return noted(PatchedPrompt(), POLICY.routing, cadence, POLICY.protect)


def the_plan(model, policy, prompt):
    embed = model.network.get_input_embeddings()
    context, query = (torch.tensor(part, dtype=torch.int64) for part in (prompt.context, prompt.query))
    question = embed(query) if prompt.query else None
    return policy.cadence.plan_episodes(context, embed(context), question, model.sentence_ends)


@pytest.mark.parametrize(("query", "interval"), sampled([0, 3], [None, 4], of=2))
def test_the_cache_of_the_questions_episode_answers_and_the_others_are_parked(query, interval):
    model, prompt = tiny(), Prompt(a_text(), outside(query).context)
    policy = episodic(interval=interval)
    plan = the_plan(model, policy, prompt)
    assert len(plan.prompts) == 3
    beside = lane(drawn(2), 9)
    outcome, other = answer(model, prompt, [lane(policy, BUDGET), beside], max_new_tokens=8)
    assert isinstance(outcome, Outcome), outcome
    alone = []
    for asked in plan.prompts:
        cadence = Blockwise(block=BLOCK, interval=interval)
        own = noted(PatchedPrompt(asked), POLICY.routing, cadence, POLICY.protect)
        alone.append((own, answer(model, prompt, [lane(own, BUDGET)], max_new_tokens=8)[0]))
    chosen = alone[plan.chosen][1]
    assert told(outcome)[:-1] == told(chosen)[:-1]
    assert len({tuple(of_lane(own, 60).held[0, 0]) for own, _ in alone}) == 3
    parked = 2 * HEADS * BUDGET * SLOT
    assert outcome.state_bytes == chosen.state_bytes + parked
    assert told(other) == told(answer(model, prompt, [beside], max_new_tokens=8)[0])
    if query:
        # Another question may have another cache answer; the prompts are those of the text.
        plans = [the_plan(model, policy, Prompt(prompt.context, (token,))) for token in range(40)]
        assert {plan.prompts for plan in plans} == {plan.prompts}
        assert len({plan.chosen for plan in plans}) > 1


def test_what_a_prompt_looks_at_in_a_block_is_what_a_plain_forward_finds():
    """At each event: a softmax over the slots alone, the largest over rows and heads of a group."""
    model, prompt = tiny(), Prompt(a_text(), ())
    policy = episodic(episodes=1)
    (asked,) = the_plan(model, policy, prompt).prompts
    answer(model, prompt, [lane(policy, BUDGET)], max_new_tokens=1)
    assert [len(view.token_ids) for view, _ in policy.notes] == [12, 24, 36, 48]
    for view, kept in policy.notes:
        seen = len(view.token_ids)
        history = of_lane(noted_until(policy, seen), 48)
        allowed = torch.ones(seen + len(asked), seen + len(asked)).tril().bool().repeat(LAYERS, 2, 1, 1)
        allowed[..., :seen, :seen] = history.allowed[..., :seen, :seen]
        history.feed(seen)
        for (layer, head), held in history.held.items():
            allowed[layer, head, seen:, :seen] = False
            allowed[layer, head, seen:, held] = True
        plain = plain_forward(model.network, prompt.context[:seen] + asked, allowed)
        (found,) = view.signals.values()
        for (layer, head), held in history.held.items():
            best = torch.zeros(len(held), dtype=torch.float64)
            for query_head in (2 * head, 2 * head + 1):
                for row in plain.weights[layer, query_head, seen:, held]:
                    best = best.maximum(row / row.sum())
            torch.testing.assert_close(found[layer][head, : len(held)], best, rtol=1e-9, atol=1e-10)
        assert kept.sum((1, 2)).tolist() == [2 * BUDGET] * LAYERS


def noted_until(policy, seen):
    """The policy with the notes of its events before `seen` tokens."""
    past = noted(policy.scoring)
    past.notes.extend(note for note in policy.notes if len(note[0].token_ids) < seen)
    return past


def test_caches_that_share_the_budget_hold_their_part_of_it():
    prompt = Prompt(a_text(), ())
    lanes = [lane(episodic(shared=shared), 31) for shared in (False, True)]
    each, shared = answer(tiny(), prompt, lanes, max_new_tokens=3)
    assert (each.slots[0], shared.slots[0]) == (HEADS * 31, HEADS * 10)
    assert (each.granted, shared.granted) == ((31,), (10,))
    assert each.state_bytes == 2 * HEADS * 31 * SLOT
    assert shared.state_bytes == 2 * HEADS * 10 * SLOT


def test_a_text_within_the_budget_is_one_cache_and_the_full_one():
    prompt = Prompt(a_text(), ())
    one, full = answer(tiny(), prompt, [lane(episodic(), 48), lane(all_kept())], max_new_tokens=6)
    assert one.token_ids == full.token_ids
    assert (one.slots, one.state_bytes) == (full.slots, 0)


def test_episodes_need_a_scoring_that_asks_about_them():
    wrong = noted(Noise(1), cadence=Episodic(block=BLOCK))
    with pytest.raises(BadInput, match=r"cadence of lane a lane: Episodic scores .* Noise does not support; choose"):
        answer(tiny(), outside(30), [lane(wrong, 9)], max_new_tokens=1)
    plain = noted(PatchedPrompt(), cadence=Cadence())
    assert isinstance(answer(tiny(), outside(30), [lane(plain, 9)], max_new_tokens=1)[0], Outcome)


def test_a_cache_that_cannot_be_filled_fails_its_lane():
    class Refusing(PatchedPrompt):
        def score(self, view):
            if len(view.token_ids) == 24:
                raise ValueError("scores: 24 tokens are too many")
            return super().score(view)

    policy = noted(Refusing(), POLICY.routing, Episodic(block=BLOCK, window=2), POLICY.protect)
    (failed,) = answer(tiny(), Prompt(a_text(), ()), [lane(policy, BUDGET)], max_new_tokens=1)
    assert failed == LaneFailure("scores: 24 tokens are too many")
