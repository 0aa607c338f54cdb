"""The shipped models: they solve their tasks with their whole cache, and need it."""

from dataclasses import replace
from pathlib import Path

import pytest

import policies
from benchmarks.embedded import vocabulary
from protocol import engine, tasks
from protocol.formats.refusals import Drifted
from protocol.grading import boxed
from protocol.grading.program import ProgramGrader
from protocol.models import checksums, load, sources
from protocol.tasks import prompting

MODELS = [name for name, model in sources.MODELS.items() if isinstance(model, sources.Embedded)]
CHAIN = [name for name in MODELS if name.startswith("chain")]
THINKING = [name for name in MODELS if name.startswith("programs")]
TASK = tasks.get("chain")
NOWHERE = Path("/nowhere")  # embedded models need no home


def lanes():
    one = policies.get("1d")
    evicting = replace(one, cadence=replace(one.cadence, interval=16))
    yield engine.Lane("full", policies.get("full"), None, 0)
    yield from (engine.Lane(str(budget), evicting, budget, 0) for budget in (64, 128))


@pytest.fixture(scope="module", params=[CHAIN[0], pytest.param(CHAIN[1], marks=pytest.mark.soak)])
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


def test_two_families_of_each_kind_are_shipped_and_those_that_think_have_layers_and_heads():
    networks = {name: load.load(name, NOWHERE).network for name in MODELS}
    assert [networks[name].config.model_type for name in CHAIN] == ["llama", "qwen2"]
    assert [networks[name].config.model_type for name in THINKING] == ["llama", "qwen3"]
    for name in THINKING:
        config = networks[name].config
        assert config.num_hidden_layers * config.num_key_value_heads == 16
        assert (sources.model_folder(name, NOWHERE) / "model.safetensors").stat().st_size < 12e6


@pytest.mark.parametrize("name", [THINKING[0], pytest.param(THINKING[1], marks=pytest.mark.soak)])
def test_models_that_think_write_every_word_of_three_forms_right(name):
    model = load.load(name, NOWHERE)
    worked, requests = {}, []
    for task in map(tasks.get, ("programs", "facts", "functions")):
        for problem in (task.build(item, len) for item in task.calibration_ids()[:60:40]):
            worked[problem.id] = task.worked(problem.id), problem.gold
            prompt = engine.Prompt(tuple(prompting.render(problem, model.tokenizer, "inside")[0]), ())
            requests.append(engine.Request(problem.id, prompt, (engine.Lane("full", policies.get("full"), None, 0),)))
    answers = engine.run(model, requests, max_new_tokens=420).answers
    with ProgramGrader() as programs:
        for (problem, (expected, gold)), answer in zip(worked.items(), answers, strict=True):
            text, form = model.tokenizer.decode(answer.outcomes[0].token_ids), problem.split("/")[0]
            assert text.removesuffix("</s>").split() == expected.trace.split()
            grade = programs.grade(gold, text) if form == "written" else boxed.grade(gold, text)
            assert grade.status == "correct"


def test_with_the_whole_cache_nearly_every_problem_is_right(answered):
    assert accuracy(answered, "full") >= 0.95


def test_accuracy_falls_clearly_between_128_and_64_slots(answered):
    assert accuracy(answered, "128") >= accuracy(answered, "64") + 0.15
    assert accuracy(answered, "full") >= accuracy(answered, "128") + 0.15


@pytest.mark.parametrize("name", MODELS)
def test_the_stored_tokenizer_is_the_one_that_training_used(name):
    """transformers would give a Qwen2 another one, whatever its tokenizer.json says."""
    stored = load.tokenizer(name, NOWHERE)
    if name in CHAIN:
        puzzle, made = TASK.puzzle("chain/24/000"), vocabulary.tokenizer()
        text = f"<s> {puzzle.definitions} {puzzle.question} <think> {puzzle.solution} </s>"
    else:
        worked, made = tasks.get("programs").worked("executed/18/000"), vocabulary.programs_tokenizer()
        text = f"<s> {worked.prompt()} <think> {worked.trace} </s>"
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
    with pytest.raises(Drifted, match=r"config\.json has changed since it was stored; from git"):
        checksums.verify(copy, name, "from git")
    assert sources.repair_hint(name, NOWHERE) == f"restore {folder} from version control"
