"""The shipped model, for real: a budget that covers the prompt gives its own greedy answer."""

from dataclasses import replace

import pytest
import torch
from sampled import sampled

import policies
import splits
from protocol import engine, tasks
from protocol.formats import files
from protocol.formats.refusals import BadInput
from protocol.models.load import load
from protocol.tasks import prompting

CALIBRATED = tuple(
    name
    for name in policies.names()
    if any(isinstance(signal, policies.Calibrated) for signal in policies.get(name).needs)
)


@pytest.fixture(scope="module")
def smollm2():
    try:
        return load("smollm2-135m", files.cache_home())
    except BadInput as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize(("query", "part"), sampled(["inside", "outside"], range(6), of=12))
def test_a_covering_budget_reproduces_greedy_generation(smollm2, query, part):
    """A sixth of the policies at a time; test_catalogue.py holds it of all of them, on a small network."""
    item = splits.load("needle-256").dev[0]
    words = smollm2.tokenizer
    problem = tasks.get("needle-256").build(item, lambda text: len(words(text, add_special_tokens=False)["input_ids"]))
    context, asked = prompting.render(problem, words, query)
    prompt = torch.tensor([context + asked])
    expected = smollm2.network.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=12, do_sample=False, pad_token_id=0
    )[0, prompt.shape[1] :].tolist()
    expected = [token for token in expected if token not in smollm2.stop_ids]
    room = len(context)
    lanes = tuple(
        engine.Lane(name, policies.get(name), room if policies.get(name).evicts else None, 0)
        for name in policies.names()[part::6]
        # Where caches share the budget, it does not cover the context.
        if name not in CALIBRATED and policies.get(name).cadence.budget(room, 0) == room
    )
    request = engine.Request(item, engine.Prompt(tuple(context), tuple(asked)), lanes)
    (answers,) = engine.run(smollm2, [request], max_new_tokens=12).answers
    assert [list(outcome.token_ids) for outcome in answers.outcomes] == [expected] * len(lanes)
    assert problem.gold in words.decode(expected)


@pytest.mark.parametrize("name", CALIBRATED)
def test_a_policy_that_needs_statistics_is_refused_without_them_in_one_line(smollm2, name):
    lane = engine.Lane(name, policies.get(name), 2 if policies.get(name).evicts else None, 0)
    request = engine.Request("p", engine.Prompt((1, 2, 3), ()), (lane,))
    with pytest.raises(BadInput) as refused:
        engine.run(replace(smollm2, statistics={}), [request], max_new_tokens=1)
    said = str(refused.value)
    assert f"lane {name} needs " in said
    assert "run: kv-prereg calibrate smollm2-135m " in said
    assert "\n" not in said
