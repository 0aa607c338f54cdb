"""A text that goes on where it was cut: to a policy its answer is an answer, and no prompt."""

import pytest
import torch
from tiny_networks import DEPTH, all_kept, answer, competing, greedy, lane, outside, tiny, watched

import policies
from policies import Cadence
from protocol.engine import Prompt

CARRIED = ("h2o", "raas", "crystal-kv-lite", "epikv", "kv-key", "lagkv-causal", "attn-x-hs", "snapkv")
STEPS = 12


def noting(policy, interval):
    """Its views and kept sets, with events every so many steps."""
    return watched(policy, cadence=Cadence(interval=interval, slack=False))


@pytest.mark.parametrize("name", CARRIED)
def test_the_first_event_over_a_written_text_is_that_of_its_step(name):
    """Of a lane that held everything until then: rows, keys and hidden states of prompt and of answer."""
    model, prompt, budget = tiny(num_hidden_layers=DEPTH), outside(30, seed=4), 36
    policy = competing(policies.get(name))
    late, first = noting(policy, STEPS), noting(policy, None)
    (decoded,) = answer(model, prompt, [lane(late, budget)], max_new_tokens=STEPS + 1)
    written = decoded.token_ids[:STEPS]
    assert written == greedy(model, prompt.context, STEPS)
    (cut,) = answer(model, Prompt(prompt.context + written, (), STEPS), [lane(first, budget)], max_new_tokens=1)
    (_, (then, due)), ((view, kept),) = late.notes, first.notes
    assert (view.prompt, then.prompt) == (30, 30)
    assert torch.equal(view.token_ids, then.token_ids)
    same, own = (policy.scoring.score(each._replace(budget=budget)).slots for each in (then, view))
    torch.testing.assert_close(own.expand(same.shape), same, rtol=1e-5, atol=1e-5)
    assert torch.equal(kept, due)
    assert cut.events[0][0] == 0


def test_what_preserves_the_prompt_lets_the_written_answer_compete():
    model, prompt = tiny(num_hidden_layers=DEPTH), outside(10, seed=2)
    text = prompt.context + greedy(model, prompt.context, 20)
    own = noting(policies.get("epikv"), None)
    refused, _ = answer(model, Prompt(text, (), 20), [lane(own, 10), lane(own, 16)], max_new_tokens=1)
    assert "12 protected slots" in refused.reason  # ten of the prompt and K/4 of the last
    ((_, last),) = own.notes
    assert last[..., :10].all()
    assert last.sum(-1).unique().tolist() == [16]
    (whole,) = answer(model, Prompt(text, ()), [lane(policies.get("epikv"), 16)], max_new_tokens=1)
    assert "30 protected slots" in whole.reason


def test_marks_are_looked_for_in_the_written_answer_alone():
    model, prompt = tiny(), outside(12, seed=9)
    text = prompt.context + tuple(range(40, 52))
    own = noting(policies.get("state_emit"), None)
    answer(model, Prompt(text[:-1], text[-1:], 12), [lane(own, 20)], max_new_tokens=1)
    ((view, _),) = own.notes
    (lines,) = view.lines.values()
    starts = [at for at in range(12, 23) if text[at] % len("State:") == 0]  # the tiny model's marks
    assert [line.start for line in lines] == starts


def test_a_written_text_says_what_the_text_says():
    model, prompt = tiny(), outside(12, 3, seed=9)
    whole = greedy(model, prompt.context + prompt.query, 9)
    text = prompt.context + prompt.query + whole[:4]
    (outcome,) = answer(model, Prompt(text[:-1], text[-1:], 4), [lane(all_kept())], max_new_tokens=5)
    assert outcome.token_ids == whole[4:]
