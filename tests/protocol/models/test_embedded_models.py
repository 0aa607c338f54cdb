"""The shipped models: they solve chain arithmetic with their whole cache, and need it."""

from dataclasses import replace
from pathlib import Path

import pytest

import policies
from benchmarks.embedded.vocabulary import tokenizer
from protocol import engine, tasks
from protocol.formats.refusals import Drifted
from protocol.grading import boxed
from protocol.models import checksums, load, sources
from protocol.tasks import prompting

MODELS = [name for name, model in sources.MODELS.items() if isinstance(model, sources.Embedded)]
TASK = tasks.get("chain")
NOWHERE = Path("/nowhere")  # embedded models need no home


def lanes():
    one = policies.get("1d")
    evicting = replace(one, cadence=replace(one.cadence, interval=16))
    yield engine.Lane("full", policies.get("full"), None, 0)
    yield from (engine.Lane(str(budget), evicting, budget, 0) for budget in (64, 128))


@pytest.fixture(scope="module", params=[MODELS[0], pytest.param(MODELS[1], marks=pytest.mark.soak)])
def answered(request):
    """(key of the lane, problem) -> grade, on calibration problems of every level."""
    model = load.load(request.param, NOWHERE)
    problems = [TASK.build(item, len) for item in TASK.calibration_ids()[::20]]
    requests = [
        engine.Request(
            problem.id,
            engine.Prompt(tuple(prompting.render(problem, model.tokenizer, "inside")[0]), ()),
            tuple(lanes()),
        )
        for problem in problems
    ]
    ran = engine.run(model, requests, max_new_tokens=320)
    return {
        (lane.key, problem.id): boxed.grade(problem.gold, model.tokenizer.decode(outcome.token_ids)).status
        for problem, one, answers in zip(problems, requests, ran.answers, strict=True)
        for lane, outcome in zip(one.lanes, answers.outcomes, strict=True)
    }


def accuracy(answered, key):
    grades = [grade for (lane, _), grade in answered.items() if lane == key]
    return grades.count("correct") / len(grades)


def test_two_families_are_shipped():
    assert {load.load(name, NOWHERE).network.config.model_type for name in MODELS} == {"llama", "qwen2"}


def test_with_the_whole_cache_nearly_every_problem_is_right(answered):
    assert accuracy(answered, "full") >= 0.95


def test_accuracy_falls_clearly_between_128_and_64_slots(answered):
    assert accuracy(answered, "128") >= accuracy(answered, "64") + 0.15
    assert accuracy(answered, "full") >= accuracy(answered, "128") + 0.15


@pytest.mark.parametrize("name", MODELS)
def test_the_stored_tokenizer_is_the_one_that_training_used(name):
    """transformers would give a Qwen2 another one, whatever its tokenizer.json says."""
    stored, made = load.tokenizer(name, NOWHERE), tokenizer()
    puzzle = TASK.puzzle("chain/24/000")
    text = f"<s> {puzzle.definitions} {puzzle.question} <think> {puzzle.solution} </s>"
    ids = stored(text, add_special_tokens=False)["input_ids"]
    assert ids == made(text, add_special_tokens=False)["input_ids"]
    assert stored.unk_token_id not in ids
    assert stored.decode(ids) == " ".join(text.split())
    assert stored.chat_template == made.chat_template


@pytest.mark.parametrize("name", MODELS)
def test_the_files_are_those_that_were_sealed_and_damage_is_refused(name, tmp_path):
    folder = sources.model_folder(name, NOWHERE)
    checksums.verify(folder, name, "")
    copy = tmp_path / name
    copy.mkdir()
    for path in folder.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    (copy / "config.json").write_text("{}")
    with pytest.raises(Drifted, match=r"config\.json is not the file that was stored; from git"):
        checksums.verify(copy, name, "from git")
    assert sources.repair_hint(name, NOWHERE) == f"restore {folder} from version control"
