"""The line of one trace: of a chain that an embedded model answers, under arms of every kind."""

import zlib
from decimal import Decimal
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, DynamicCache

from policies import BudgetError, Calibrated, Statistics, View, get
from policies.epikv import Epiphany, preserving_policy
from policies.signals import AttentionSums, HiddenChange, Keys, Trace
from protocol import engine
from protocol.formats import files
from protocol.instruments.anatomy import fields
from protocol.instruments.anatomy.run import trace_record
from protocol.instruments.anatomy.run.arm_probes import Arm
from protocol.instruments.anatomy.windows import count_flips
from protocol.models import sources
from protocol.models.load import load
from protocol.plan import toml_reader
from protocol.tasks import held_out_guard, prompting
from protocol.workspace.planned_study import PlannedStudy

PROBLEM = "chain/09/012"
HEAD = {"registration": "a" * 64, "attempt": 1, "half": "choose", "time": "2026-11-28T10:00:00+00:00"}
SET = '{ "scoring.band_a" = [0], "scoring.band_b" = [1], "scoring.depth" = 2 }'
PROTOCOL = """
title = "Traces"
question = "What does the answer need?"
models = ["chain-qwen2"]
seeds = [0]
budgets = [40, 80]
[[tasks]]
name = "chain"
query = "inside"
max_new_tokens = 224
[arms]
full = { policy = "full" }
h2o = { policy = "h2o" }
epikv = { policy = "epikv", set = SET }
tri = { policy = "1d" }
blocks = { policy = "keydiff-blocks" }
asks = { policy = "state_ask" }
also-h2o = { policy = "h2o" }
[generation]
temperature = 0.6
dtype = "float32"
device = "cpu"
threads = 1
interval = 16
[decision]
rule = "superior"
subject = "h2o"
against = ["tri"]
at_least = 1
alpha = 0.05
method = "sign-flip"
draws = 10000
seed = 7
cache_tolerance = 0.05
memory = "slots"
missing = "inconclusive"
"""


@pytest.fixture(scope="module")
def model():
    return load("chain-qwen2", files.cache_home())


def planned(**changes):
    text = PROTOCOL.replace("SET", SET)
    for old, new in changes.items():
        text = text.replace(old, new)
    return PlannedStudy(toml_reader.parse(text.encode(), "protocol.toml"), files.cache_home())


def settings(**changes):
    own = {"window": 16, "stride": 8, "reading": "dropped", "occlude": "reasoning", "boundary": "\\boxed{"}
    own |= {"tail": None, "cut": Decimal("0.5"), "new_tokens": 96, "slip": None, "sampled": False}
    return SimpleNamespace(**{**own, **changes})


@pytest.fixture(scope="module")
def found(model):
    return trace_record.occlude_trace(planned(), model, "chain", PROBLEM, settings())


@pytest.fixture(scope="module")
def fed(model, found):
    """All tokens before the continuation, tokenised again; and how many of these are the prompt's."""
    problem = held_out_guard.build(planned().tasks["chain"], "chain", PROBLEM, prompting.counter(model.tokenizer))
    context, query = prompting.render(problem, model.tokenizer, "inside")
    assert query == []
    answer = model.tokenizer(found.body["text"], add_special_tokens=False)["input_ids"]
    boxed = found.body["text"].rindex("\\boxed{")
    before = model.tokenizer(found.body["text"][:boxed], add_special_tokens=False)["input_ids"]
    return (context + answer)[: len(context) + len(before) // 2], len(context), problem.gold


def test_what_the_line_says_of_the_trace(model, found, fed):
    said, (token_ids, prompt, gold) = found.body, fed
    assert (said["state"], said["grade"]) == ("labelled", "correct")
    assert (said["tokens"], said["prompt_tokens"]) == (len(token_ids), prompt)
    assert said["span"] == [prompt, len(token_ids) - 1]
    assert said["pieces"] == [model.tokenizer.decode([token]) for token in token_ids]
    assert said["control"]["grade"] == "correct"
    assert said["text"].endswith(said["control"]["text"].split("<|")[0])
    places = [row[:2] for row in said["windows"]["padded"]]
    assert places == [row[:2] for row in said["windows"]["dropped"]]
    assert places[0] == [prompt, prompt + 16]
    assert places[-1][1] == len(token_ids) - 1
    boxed = f"\\boxed{{{gold}}}"
    for rows in said["windows"].values():
        assert {boxed in text for _, _, text, grade in rows if grade == "correct"} == {True}
        assert {boxed in text for _, _, text, grade in rows if grade != "correct"} == {False}


def test_windows_and_control_are_what_generate_says(model, found, fed):
    token_ids, network = fed[0], model.network
    n = len(token_ids)

    def said(ids, **more):
        made = network.generate(
            torch.tensor([ids]),
            attention_mask=torch.ones(1, len(ids)),
            do_sample=False,
            max_new_tokens=96,
            pad_token_id=0,
            eos_token_id=sorted(model.stop_ids),
            **more,
        )[0, len(ids) :].tolist()
        return model.tokenizer.decode([token for token in made if token not in model.stop_ids])

    assert said(token_ids) == found.body["control"]["text"]
    windows = found.body["windows"]
    for start, stop, text, _ in windows["padded"][::3]:
        pad = [model.tokenizer.pad_token_id] * (stop - start)
        assert text == said([*token_ids[:start], *pad, *token_ids[stop:]])
    for start, stop, text, _ in windows["dropped"][::3]:
        cache = DynamicCache(config=network.config)
        network(torch.tensor([token_ids[:-1]]), past_key_values=cache)
        kept = [at for at in range(n - 1) if not start <= at < stop]
        for layer in cache.layers:
            layer.keys, layer.values = layer.keys[:, :, kept], layer.values[:, :, kept]
        places = [*kept, n - 1]
        ids = [token_ids[at] for at in places]
        assert text == said(ids, past_key_values=cache, position_ids=torch.tensor([places]))


def by_row(found):
    cited = found.body["values"]
    values = np.frombuffer(zlib.decompress(found.values), "<f4").reshape(-1, found.body["tokens"])
    assert len(values) == len(cited["signals"]) + cited["kept"] == len(cited["signals"]) + len(found.body["kept"])
    named = dict(zip(map(tuple, cited["signals"]), values, strict=False))
    kept = {
        (one["arm"], one["budget"]): row for one, row in zip(found.body["kept"], values[-cited["kept"] :], strict=True)
    }
    return named, kept


def view_by_hand(model, token_ids, prompt):
    """Of the first n - 1 tokens, from transformers' own eager forward."""
    network = AutoModelForCausalLM.from_pretrained(
        sources.locate("chain-qwen2", files.cache_home()), attn_implementation="eager"
    )
    event = torch.tensor(token_ids[:-1])
    blocks = []
    for layer in network.model.layers:
        layer.register_forward_hook(lambda module, given, output: blocks.append(output[0]))
    with torch.no_grad():
        seen = network(event[None], output_attentions=True, use_cache=True)
    sums = tuple(own[0].sum(-2) for own in seen.attentions)
    changes = [torch.cat([torch.zeros(1), own.diff(dim=0).norm(dim=-1)]) for own in blocks]
    traces = [Trace(change, own[-1]) for change, own in zip(changes, blocks, strict=True)]
    signals = {
        AttentionSums(): sums,
        HiddenChange((0,), 2): (traces[0], None),
        HiddenChange((1,), 2): (None, traces[1]),
        Keys(): tuple(layer.keys[0] for layer in seen.past_key_values.layers),
        Calibrated("text", Statistics): model.statistics["text"],
    }
    return View(event, 2, 2, model.sentence_ends, 0, signals, prompt=prompt)


@pytest.mark.parametrize(
    ("arm", "policy", "changes"),
    [("h2o", "h2o", {}), ("tri", "1d", {}),
     ("epikv", "epikv", {"scoring.band_a": (0,), "scoring.band_b": (1,), "scoring.depth": 2})],
)  # fmt: skip
def test_scores_and_kept_sets_are_those_of_the_policy_on_a_view_made_by_hand(model, found, fed, arm, policy, changes):
    """epikv protects the prompt, and is worth what it is to an answer that begins behind it."""
    token_ids, prompt, _ = fed
    view, (named, kept) = view_by_hand(model, token_ids, prompt), by_row(found)
    own = get(policy, changes)
    scores = own.scoring.score(view._replace(budget=40)).slots.mean(1)
    for layer, due in enumerate(scores):
        row = named[f"scoring:{arm}", None if len(scores) == 1 else layer]
        assert np.isnan(row[-1])
        np.testing.assert_allclose(row[:-1], due, rtol=2**-11, atol=1e-4)
    if arm == "epikv":
        assert np.isnan(kept[arm, "40"]).all()
        with pytest.raises(BudgetError) as refused:
            own.keep(view, 40)
        entry = next(one for one in found.body["kept"] if (one["arm"], one["budget"]) == (arm, "40"))
        assert (entry["state"], entry["reason"]) == ("failed", str(refused.value))
        assert kept[arm, "80"][:prompt].tolist() == [1.0] * prompt
    for budget in (80,) if arm == "epikv" else (40, 80):
        due = own.keep(view, budget).double().mean((0, 1))
        np.testing.assert_allclose(kept[arm, str(budget)], [*due, 1.0], atol=2**-12)
        assert kept[arm, str(budget)].min() == 0


def test_what_is_kept_is_a_line_for_each_arm_and_budget_and_says_who_is_left_out(found):
    named, kept = by_row(found)
    said = {(one["arm"], one["budget"]): one for one in found.body["kept"]}
    arms = ("h2o", "epikv", "tri", "blocks", "asks", "also-h2o", "oracle-occlusion")
    assert list(said) == [(arm, budget) for arm in arms for budget in ("40", "80")]
    for (arm, budget), one in said.items():
        assert (one["slots"], one["needed"]) == (int(budget), None)
        if arm in ("blocks", "asks"):
            assert one["state"] == "failed"
            assert np.isnan(kept[arm, budget]).all()
    assert said["blocks", "40"]["reason"].startswith("reads a context in blocks")
    assert said["asks", "40"]["reason"].startswith("asks the model an additional question")
    names = [name for name, _ in named if name.startswith("scoring:")]
    assert sorted(set(names)) == ["scoring:epikv", "scoring:h2o", "scoring:tri"]  # also-h2o is h2o
    assert said["also-h2o", "40"]["text"] == said["h2o", "40"]["text"]


def test_the_oracle_keeps_needed_tokens_first(found):
    _, kept = by_row(found)
    flips = count_flips(found.body["tokens"], found.body["windows"]["dropped"])
    due = {at for at, flipped in enumerate(flips) if flipped}
    for budget in (40, 80):
        row = kept["oracle-occlusion", str(budget)]
        assert row.sum() == budget + 1  # the last token is fed after the event
        own = set(np.flatnonzero(row).tolist())
        assert due <= own if len(due) <= budget else own - {found.body["tokens"] - 1} <= due


def states(model, changes=None, **own):
    made = trace_record.occlude_trace(planned(**(changes or {})), model, "chain", PROBLEM, settings(**own))
    return made.body["state"], made.body["reason"], made


def test_what_has_no_label_is_counted_by_name(model):
    state, reason, made = states(model, window=999)
    assert (state, made.values) == ("short", b"")
    assert reason.endswith("and a window has 999")
    assert made.body["span"][1] == made.body["tokens"] - 1
    assert "windows" not in made.body
    state, reason, made = states(model, {"max_new_tokens = 224": "max_new_tokens = 9"})
    assert (state, reason) == ("wrong", "graded no answer with its whole cache")
    assert made.body.keys() == {
        "model",
        "task",
        "problem",
        "prompt",
        "prompt_tokens",
        "text",
        "grade",
        "state",
        "reason",
    }
    state, reason, made = states(model, new_tokens=1)
    assert state == "unreproduced"
    assert reason == "with nothing occluded (in a lane), the continuation is graded no answer"
    assert made.body["control"]["grade"] == "no answer"
    assert not {"windows", "kept", "values"} & made.body.keys()
    asks = 'asks = { policy = "state_ask" }\n'
    excluded = {asks: "", "[decision]": "[exclude]\nprompt_tokens_above = 20\n[decision]"}
    state, reason, made = states(model, excluded)
    assert (state, made.values) == ("failed", b"")
    assert reason.startswith("prompt_tokens: 54, above 20")


def test_a_trace_that_no_occlusion_changes_is_unmoved_and_keeps_its_windows(model):
    state, _, made = states(model, window=2, stride=40, cut=Decimal(1), new_tokens=6)
    assert state == "unmoved"
    assert {row[3] for row in made.body["windows"]["dropped"]} == {"correct"}
    assert made.body["values"]["kept"] == len(made.body["kept"])


def test_a_wrong_answer_is_asked_again_without_what_it_reads_least(model, monkeypatch):
    """Whatever it says is graded wrong, so that nothing is labelled; by hand, its answer without either half."""
    real = trace_record.traces.make_grader
    monkeypatch.setattr(
        trace_record.traces, "make_grader", lambda *of: lambda text: real(*of)(text)._replace(grade="wrong")
    )
    state, reason, made = states(model, cut=Decimal(1), new_tokens=6, slip=Decimal("0.5"))
    assert (state, reason) == ("wrong", "graded wrong with its whole cache")
    assert fields.find_fault(made.body | HEAD) is None
    assert not {"windows", "kept"} & made.body.keys()
    assert made.body["values"]["kept"] == 0
    n, prompt = made.body["tokens"], made.body["prompt_tokens"]
    values = np.frombuffer(zlib.decompress(made.values), "<f4").reshape(-1, n)
    attention = values[made.body["values"]["signals"].index(["answer_attention", None])]
    thought = range(prompt, n - 1)
    ranked = sorted(thought, key=lambda at: attention[at])
    count = len(thought) // 2
    for name, dropped in (("bottom", ranked[:count]), ("top", ranked[-count:])):
        kept = [at for at in range(n - 1) if at not in dropped]
        ids = [model.tokenizer.convert_tokens_to_ids(piece) for piece in made.body["pieces"]]
        cache, places = DynamicCache(config=model.network.config), [*kept, n - 1]
        model.network(torch.tensor([ids[:-1]]), past_key_values=cache)
        for layer in cache.layers:
            layer.keys, layer.values = layer.keys[:, :, kept], layer.values[:, :, kept]
        said = model.network.generate(
            torch.tensor([[ids[at] for at in places]]),
            past_key_values=cache,
            position_ids=torch.tensor([places]),
            do_sample=False,
            max_new_tokens=6,
            pad_token_id=0,
            eos_token_id=sorted(model.stop_ids),
        )[0, len(places) :].tolist()
        text = model.tokenizer.decode([token for token in said if token not in model.stop_ids])
        assert made.body["slip"][name] == {"text": text, "grade": "wrong"}
    assert made.body["slip"]["bottom"]["text"] != made.body["slip"]["top"]["text"]
    assert "slip" not in states(model, cut=Decimal(1))[2].body


def test_a_sampled_trace_is_the_answer_that_the_full_cache_draws_and_its_control_goes_on_as_it_did(model, monkeypatch):
    """With the first of two seeds. Right and wrong ones are in one batch; an arm fails, and a wrong one has no arms."""
    problems = ["chain/06/006", "chain/06/000", "chain/06/016", "chain/06/020"]
    sampled = {"temperature = 0.6": "temperature = 1.4\ntop_p = 0.98", "seeds = [0]": "seeds = [5, 6]"}
    study, deep = planned(**sampled), preserving_policy(Epiphany(band_a=(0,), band_b=(9,), depth=None))
    arms = [Arm("deep", "80", 80, deep), Arm("h2o", "40", 40, get("h2o"))]
    monkeypatch.setattr(trace_record, "study_arms", lambda *of: arms)
    own = settings(cut=Decimal(1), new_tokens=16, window=40, stride=40, slip=Decimal("0.3"), sampled=True)
    lines = list(trace_record.occlude_traces(study, model, "chain", problems, own))
    counter, requests = prompting.counter(model.tokenizer), []
    for problem in problems:
        built = held_out_guard.build(study.tasks["chain"], "chain", problem, counter)
        context, query = prompting.render(built, model.tokenizer, "inside")
        lane = engine.Lane("full", get("full"), None, 5)
        requests.append(engine.Request(problem, engine.Prompt(tuple(context), tuple(query)), (lane,)))
    ran = engine.run(model, requests, max_new_tokens=224, temperature=1.4, top_p=0.98)
    texts = [model.tokenizer.decode(list(answer.outcomes[0].token_ids)) for answer in ran.answers]
    assert [line.body["text"] for line in lines] == texts
    assert [line.body["grade"] for line in lines] == ["wrong", "correct", "wrong", "correct"]
    for line in lines:
        body = line.body
        assert fields.find_fault(body | HEAD) is None
        assert body["text"].endswith(body["control"]["text"])
        assert body["control"]["grade"] == body["grade"]
        assert set(body["slip"]) == {"answer", "bottom", "random", "top"}
        if body["grade"] == "correct":
            assert body["kept"][0]["reason"].startswith("model chain-qwen2: the policy reads the output of layer 9")
            assert {"grade"} <= body["kept"][1].keys()


def test_a_layer_that_is_not_there_fails_its_arm_alone(model, monkeypatch):
    deep = preserving_policy(Epiphany(band_a=(0,), band_b=(9,), depth=None))
    asked = [Arm("deep", "80", 80, deep), Arm("h2o", "40", 40, get("h2o"))]
    monkeypatch.setattr(trace_record, "study_arms", lambda *of: asked)
    state, _, made = states(model, window=40, stride=40)
    deep, h2o, *_ = made.body["kept"]
    assert (state, deep["state"], h2o["arm"]) == ("labelled", "failed", "h2o")
    assert deep["reason"].startswith("model chain-qwen2: the policy reads the output of layer 9, but the model has 2")
    assert "grade" in h2o
    assert "state" not in h2o


def test_traces_in_company_have_the_lines_that_they_have_alone(model, monkeypatch):
    """In batches of several; between those that are occluded, some are excluded and one is not reproduced."""
    problems = ["chain/06/000", "chain/09/014", "chain/06/002", PROBLEM, "chain/06/001"]
    changes = {"[decision]": "[exclude]\nprompt_tokens_above = 57\n[decision]", "budgets = [40, 80]": "budgets = [40]"}
    changes |= {f"{arm}\n": "" for arm in PROTOCOL.splitlines() if arm.startswith(("asks", "also-h2o"))}
    own = settings(window=12, stride=12, new_tokens=56)
    alone = [trace_record.occlude_trace(planned(**changes), model, "chain", one, own) for one in problems]
    monkeypatch.setattr(trace_record, "BATCH_WINDOWS", 6)
    monkeypatch.setattr(trace_record, "BATCH_ANSWERS", 4)
    together = list(trace_record.occlude_traces(planned(**changes), model, "chain", problems, own))
    assert [one.body["state"] for one in alone] == ["labelled", "failed", "labelled", "unreproduced", "labelled"]
    for one, beside in zip(alone, together, strict=True):
        for found in (one, beside):
            found.body.get("values", {}).pop("sha256", None)
        assert one.body == beside.body
        assert bool(one.values) == bool(beside.values) == (one.body["state"] in ("labelled", "unmoved"))
        if one.values:
            rows, others = (np.frombuffer(zlib.decompress(own.values), "<f4") for own in (one, beside))
            np.testing.assert_allclose(rows, others, rtol=2**-10, atol=1e-4)
