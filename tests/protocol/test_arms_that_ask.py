"""Arms that ask the model something beside the problem: what is registered, locked, fed and said of it."""

from types import SimpleNamespace

import pytest

from analysis.judgement import arm_text
from policies.structure import structure
from protocol import engine
from protocol.formats.refusals import BadInput
from protocol.plan import grid, toml_reader
from protocol.run.executors import Job, local
from protocol.tasks import Problem, held_out_guard, prompting
from protocol.workspace.planned_study import PlannedStudy

TEXT = """
title = "Asked"
question = "Do pinned lines help?"
models = ["chain-llama"]
seeds = [0]
budgets = [24, 32]
[[tasks]]
name = "chain"
query = "outside"
max_new_tokens = 10
[arms]
full = { policy = "full" }
asks = { policy = "state_ask" }
parent = { policy = "1d" }
pins = { policy = "state_emit" }
quiet = { policy = "state_emit", set = { "decoding.asked" = false, "decoding.line" = "=" } }
[generation]
temperature = 0
dtype = "float32"
device = "cpu"
threads = 1
interval = 4
[gate]
accuracy = 0.05
truncated = 0.5
[decision]
rule = "superior"
subject = "pins"
against = ["asks"]
beside = ["quiet"]
at_least = 1
alpha = 0.05
method = "sign-flip"
draws = 1000
seed = 7
cache_tolerance = 0.02
memory = "slots"
missing = "inconclusive"
"""


def parse(text=TEXT):
    return toml_reader.parse(text.encode(), "protocol.toml")


ASKED = 'After every step, write one short line that begins with "State:" and says what holds by then.'


def locked(design):
    named = [arm.name for arm in design.arms]
    return {
        "protocol": {"content": design.content()},
        "policies": {name: structure(design.policy(name)) for name in named},
        "asked": {name: design.extra_prompt(name) for name in named if design.extra_prompt(name)},
    }


def test_arms_of_one_study_ask_what_their_policies_say():
    design = parse()
    assert [design.extra_prompt(arm.name) for arm in design.arms] == ["", ASKED, "", ASKED, ""]


def test_units_are_not_kept_whole_of_lines_that_no_budget_bounds():
    assert parse(TEXT.replace("[generation]", 'c = { policy = "crystal" }\n[generation]', 1)).arm("c")
    text = TEXT.replace("interval = 4", 'interval = 4\npreserve = { prompt = false, recent = 4, lines = "x" }')
    assert parse(text).policy("parent").protect.line == "x"
    with pytest.raises(BadInput, match=r"arms\.c\.policy: keeps whole units"):
        parse(text.replace("[generation]", 'c = { policy = "crystal" }\n[generation]', 1))


def test_reports_say_what_is_asked_and_whom_it_sets_apart():
    content = locked(parse())
    assert arm_text.extra_prompt_sentences(content) == [f'asks, pins: prompt in addition to the problem: "{ASKED}"']
    assert arm_text.differing_prompt_sentences(content) == [
        f'pins and quiet were asked different things (pins: "{ASKED}"; quiet: nothing)'
    ]
    content["asked"]["quiet"] = "\x1b[2J now\n\n\u202e go"
    assert 'quiet: "\ufffd[2J now \ufffd go"' in arm_text.differing_prompt_sentences(content)[0]
    del content["asked"]
    assert arm_text.extra_prompt_sentences(content) == arm_text.differing_prompt_sentences(content) == []


def test_a_problem_has_a_prompt_for_each_ask_and_records_in_the_order_of_the_cells(monkeypatch):
    """Lanes that ask the same fork from one prefill; the order of the cells mixes them."""
    design, seen = parse(), []

    class Words:
        chat_template = bos_token = None

        def __call__(self, text, add_special_tokens):
            return {"input_ids": [1 + len(word) for word in text.split()]}

    problem = Problem("chain/0", "ba be bi", "what", "", "7")

    def run(model, requests, **how):
        seen.extend(requests)
        answers = [engine.Answers(tuple(engine.LaneFailure(lane.key) for lane in one.lanes), 0.5) for one in requests]
        return engine.Run(tuple(answers), 5, 1, 1, 0.0, 0.0)

    monkeypatch.setattr(local.engine, "run", run)
    monkeypatch.setattr(held_out_guard, "build", lambda *given: problem)
    layers = SimpleNamespace(num_hidden_layers=2, num_key_value_heads=2)
    model = SimpleNamespace(tokenizer=Words(), network=SimpleNamespace(config=layers))
    cells = tuple(grid.cells(design))
    produced = local.make_executor(PlannedStudy(design, None), {}, load_model=lambda name: model)(
        Job("chain-llama", "chain", ("chain/0",), cells)
    )
    assert [[lane.key.split("/")[3] for lane in one.lanes] for one in seen] == [
        ["full", "parent", "parent", "quiet", "quiet"],
        ["asks", "asks", "pins", "pins"],
    ]
    plain, asking = (prompting.render(problem, Words(), "outside", asks) for asks in ("", ASKED))
    assert [one.prompt[:2] for one in seen] == [tuple(map(tuple, plain)), tuple(map(tuple, asking))]
    assert len(asking[1]) == len(plain[1]) + len(ASKED.split())
    assert list(produced.records) == [(cell, "chain/0") for cell in cells]
    for cell, (body, _) in ((place[0], one) for place, one in produced.records.items()):
        asks = cell.arm in ("asks", "pins")
        assert body["prompt"] == prompting.digest(*(asking if asks else plain))
        assert body["reason"] == "/".join(map(str, cell))
