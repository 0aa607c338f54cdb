"""The command that measures a model: which texts it reads, what it writes down, what it refuses."""

import json
import shutil

import pytest
import torch

import splits
from protocol import calibrate, tasks
from protocol.evidence import canonical
from protocol.models import catalogue, statistics, stored
from protocol.models.load import load
from protocol.tasks import prompting

TASK = "needle-256"


@pytest.fixture
def run(tiny_model, tmp_path, monkeypatch):
    """Runs the command on the tiny model; its exit status."""
    monkeypatch.setenv("KV_PREREG_HOME", str(tmp_path))

    def command(*arguments):
        return calibrate.main([f"path:{tiny_model}", *map(str, arguments)])

    return command


@pytest.fixture
def model(tiny_model, tmp_path):
    return load(f"path:{tiny_model}", tmp_path)


def answered(model, problem, new):
    """The prompt of a problem and the model's own greedy answer, by transformers."""
    built = tasks.get(TASK).build(problem, prompting.counter(model.tokenizer))
    context, _ = prompting.render(built, model.tokenizer, "inside")
    ids = torch.tensor([context])
    made = model.network.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=new, pad_token_id=0
    )
    text = made[0].tolist()
    return text[:-1] if text[-1] in model.stop_ids else text


def prompt_digest(model, problem):
    """As a record of the problem has it."""
    built = tasks.get(TASK).build(problem, prompting.counter(model.tokenizer))
    return canonical.digest([*prompting.render(built, model.tokenizer, "inside")])


def test_traces_are_prompts_with_the_greedy_answers_of_the_model(run, model, tiny_model, tmp_path, capsys):
    assert run("traces", "--task", TASK, "--split", "dev", "--tokens", 700, "--max-new-tokens", 6) == 0
    path = statistics.places(f"path:{tiny_model}", tmp_path)["traces"]
    assert capsys.readouterr().out.startswith(f"{path}: 700 tokens, ")
    about = statistics.about(path)
    used = json.loads(about["problems"])
    dev = splits.load(TASK).dev
    assert sorted(used) == sorted(dev[: len(used)])
    assert 1 < len(used) < len(dev)
    texts = {problem: answered(model, problem, 6) for problem in used}
    assert used == {problem: prompt_digest(model, problem) for problem in texts}
    assert statistics.prompts(path) == set(used.values())
    expected, _ = statistics.measure(
        model.network, [texts[problem] for problem in dev if problem in used], 700
    )
    found = statistics.read(path)
    torch.testing.assert_close(found.query_mean, expected.query_mean)
    torch.testing.assert_close(found.value_direction, expected.value_direction)
    assert {key: about[key] for key in ("model", "task", "split", "tokens", "max_new_tokens", "dtype")} == {
        "model": f"path:{tiny_model}",
        "task": TASK,
        "split": "dev",
        "tokens": "700",
        "max_new_tokens": "6",
        "dtype": "float32",
    }
    assert len(about["weights"]) == 64


def test_a_plain_text_is_read_as_it_is(run, model, tiny_model, tmp_path):
    text = tmp_path / "some.txt"
    text.write_text("0 1 2 3.\n4 5 6 7 8 9.")
    assert run("text", "--text", text) == 0
    found = statistics.read(statistics.places(f"path:{tiny_model}", tmp_path)["text"])
    ids = model.tokenizer(text.read_text(), add_special_tokens=False)["input_ids"]
    expected, counted = statistics.measure(model.network, [ids], 1000)
    assert counted == len(ids)
    assert torch.equal(found.query_mean, expected.query_mean)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ("traces", "--task", TASK, "--split", "confirm"),
            "statistics come from calibration or dev problems",
        ),
        (("traces", "--task", TASK), "sets no calibration problems aside; write --split dev"),
        (("traces", "--task", "neddle-256", "--split", "dev"), "did you mean 'needle-256'"),
        (("text", "--text", "nowhere.txt"), "text nowhere.txt: is no readable UTF-8 text"),
        (("text", "--text", "nowhere.txt", "--tokens", "0"), "tokens and max-new-tokens: give at least 1"),
    ],
)
def test_what_is_not_to_be_read_is_refused_in_one_line_and_writes_nothing(
    run, tmp_path, capsys, arguments, line
):
    assert run(*arguments) == 2
    said = capsys.readouterr().err
    assert line in said
    assert said.count("\n") == 1
    assert not (tmp_path / "statistics").exists()


def test_held_out_problems_are_never_built(run, monkeypatch):
    built = []
    task = type(tasks.get(TASK))
    build = task.build

    def noting(self, problem, count):
        built.append(problem)
        return build(self, problem, count)

    monkeypatch.setattr(task, "build", noting)
    assert run("traces", "--task", TASK, "--split", "dev", "--max-new-tokens", 1) == 0
    assert set(built) == set(splits.load(TASK).dev)
    assert not set(built) & set(splits.load(TASK).confirm)


def test_calibration_problems_are_those_that_the_task_sets_aside(run, monkeypatch):
    task = tasks.get(TASK)
    spare = task.ids()[:2]  # stands in for a task that has some
    monkeypatch.setattr(type(task), "calibration_ids", lambda self: spare, raising=False)
    assert list(calibrate.problems(TASK, "calibration")) == list(spare)


def test_statistics_of_an_embedded_model_are_sealed_with_its_weights(tiny_model, tmp_path, monkeypatch):
    """Otherwise the next load would find a file that nobody put there."""
    shutil.copytree(tiny_model, tmp_path / "chain-llama")
    stored.seal(tmp_path / "chain-llama")
    monkeypatch.setattr(catalogue, "EMBEDDED", tmp_path)
    text = tmp_path / "some.txt"
    text.write_text("0 1 2 3.")
    weights = calibrate.weights("chain-llama", tmp_path)
    for _ in range(2):
        assert calibrate.main(["chain-llama", "text", "--text", str(text)]) == 0
        assert load("chain-llama", tmp_path).statistics.keys() == {"text"}
        assert calibrate.weights("chain-llama", tmp_path) == weights
