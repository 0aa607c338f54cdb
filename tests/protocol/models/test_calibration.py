"""The command that measures a model: which texts it reads, what it writes down, what it refuses."""

import json
import os
import shutil

import pytest
import torch

import splits
from protocol import calibrate, command, tasks
from protocol.formats import canonical
from protocol.formats.refusals import Drifted
from protocol.models import calibration, calibration_paths, checksums, query_statistics, sources
from protocol.models.load import load
from protocol.run import statistics_measurement as measuring
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
    path = calibration_paths.statistics_paths(f"path:{tiny_model}", tmp_path)["traces"]
    assert capsys.readouterr().out.startswith(f"{path}: 700 tokens, ")
    about = calibration.read_metadata(path)
    used = json.loads(about["problems"])
    dev = splits.load(TASK).dev
    order = list(measuring.interleave_levels(dev))
    assert set(used) == set(order[: len(used)])
    assert 1 < len(used) < len(dev)
    texts = {problem: answered(model, problem, 6) for problem in used}
    assert used == {problem: prompt_digest(model, problem) for problem in texts}
    assert calibration.prompt_digests(path) == set(used.values())
    expected, _ = query_statistics.measure(model.network, [texts[problem] for problem in order if problem in used], 700)
    found = calibration.read_value(path)
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
    found = calibration.read_value(calibration_paths.statistics_paths(f"path:{tiny_model}", tmp_path)["text"])
    ids = model.tokenizer(text.read_text(), add_special_tokens=False)["input_ids"]
    expected, counted = query_statistics.measure(model.network, [ids], 1000)
    assert counted == len(ids)
    assert torch.equal(found.query_mean, expected.query_mean)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("traces", "--task", TASK, "--split", "confirm"), "statistics come from calibration or dev problems"),
        (("traces", "--task", TASK), "has no calibration problems; write --split dev"),
        (("traces", "--task", "neddle-256", "--split", "dev"), "did you mean 'needle-256'"),
        (("thoughts", "--text", __file__), "thoughts can only be measured on answers of the model; give --task"),
        (("traces", "--text", __file__), "traces can only be measured on answers of the model; give --task"),
        (("routes", "--text", __file__), "routes can only be measured on answers of the model; give --task"),
        (
            ("routes", "--task", TASK, "--split", "dev"),
            "routes need its 'text', which have not been measured; run: kv-prereg calibrate ",
        ),
        (("text", "--text", "nowhere.txt"), "--text nowhere.txt: no such file"),
        (("text", "--text", "nowhere.txt", "--tokens", "0"), "--tokens and --max-new-tokens: give at least 1"),
        (("text", "--text", __file__, "--device", "nosuch"), "device 'nosuch': write cpu or cuda"),
        (("text", "--text", __file__, "--device", "cuda:99"), "'cuda:99': torch does not find it here"),
    ],
)
def test_what_is_not_to_be_read_is_refused_in_one_line_and_writes_nothing(run, tmp_path, capsys, arguments, line):
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
    assert list(calibrate.select_problems(TASK, "calibration")) == list(spare)


def test_every_level_of_a_task_has_its_turn():
    chain = tasks.get("chain")
    for ids in (chain.calibration_ids(), splits.load("chain").dev):
        order = list(measuring.interleave_levels(ids))
        assert sorted(order) == sorted(ids)
        count = len(chain.levels)
        levels = [int(problem.split("/")[1]) for problem in order]
        assert levels[:count] == levels[count : 2 * count] == list(chain.levels)
    assert list(measuring.interleave_levels(["a/1/x", "a/1/y", "a/1/z", "b/0"])) == ["a/1/x", "b/0", "a/1/y", "a/1/z"]
    assert list(measuring.interleave_levels(["aime24/60", "aime24/61"])) == ["aime24/60", "aime24/61"]


@pytest.fixture
def embedded(tiny_model, tmp_path, monkeypatch):
    """Runs the command on the tiny model as if it were embedded, in tmp_path / chain-llama."""
    shutil.copytree(tiny_model, tmp_path / "chain-llama")
    checksums.write_sums(tmp_path / "chain-llama")
    monkeypatch.setattr(sources, "EMBEDDED", tmp_path)
    text = tmp_path / "some.txt"
    text.write_text("0 1 2 3.")
    return lambda: calibrate.main(["chain-llama", "text", "--text", str(text)])


def test_statistics_of_an_embedded_model_are_sealed_with_its_weights(embedded, tmp_path):
    """Otherwise the next load would find a file that nobody put there."""
    weights = calibration.weights_digest("chain-llama", tmp_path)
    assert embedded() == 0
    assert load("chain-llama", tmp_path).statistics.keys() == {"text"}
    assert calibration.weights_digest("chain-llama", tmp_path) == weights
    about = calibration.read_metadata(tmp_path / "chain-llama" / "statistics-text.safetensors")
    assert about["weights"] == weights
    assert not list(tmp_path.glob("tmp*"))


def test_statistics_are_written_once_and_anew_when_they_were_moved_away(run, tiny_model, tmp_path, capsys):
    text = tmp_path / "some.txt"
    text.write_text("0 1 2 3.")
    assert run("text", "--text", text) == 0
    path = calibration_paths.statistics_paths(f"path:{tiny_model}", tmp_path)["text"]
    written = path.read_bytes()
    text.write_text("4 5 6 7.")
    assert run("text", "--text", text) == 2
    said = capsys.readouterr().err
    assert said == f"BadInput: {path}: exists already and is never overwritten; move it away to measure again\n"
    assert path.read_bytes() == written
    path.rename(tmp_path / "away")
    assert run("text", "--text", text) == 0
    assert path.read_bytes() != written


def test_embedded_statistics_whose_sum_was_never_written_are_told_of_and_the_line_helps(
    embedded, tmp_path, monkeypatch, capsys
):
    def killed(folder):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(checksums, "write_sums", killed)
        assert embedded() == 130
    path = tmp_path / "chain-llama" / "statistics-text.safetensors"
    with pytest.raises(Drifted, match=r"statistics-text.safetensors was added; restore .* from version"):
        load("chain-llama", tmp_path)
    capsys.readouterr()
    assert embedded() == 2
    assert "move it away and remove its line from SHA256SUMS to measure again" in capsys.readouterr().err
    path.unlink()
    assert load("chain-llama", tmp_path).statistics == {}
    assert embedded() == 0
    # Its sum is written by now, so that its line has to go as well.
    path.unlink()
    sums = path.with_name("SHA256SUMS")
    sums.write_text("".join(line for line in sums.read_text().splitlines(True) if path.name not in line))
    assert embedded() == 0


def test_statistics_that_another_process_wrote_meanwhile_are_not_replaced(run, tiny_model, tmp_path, capsys):
    text = tmp_path / "some.txt"
    text.write_text("0 1 2 3.")
    path = calibration_paths.statistics_paths(f"path:{tiny_model}", tmp_path)["text"]
    measure = measuring.measure

    def slow(*arguments):
        path.write_bytes(b"theirs")
        return measure(*arguments)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(measuring, "measure", slow)
        assert run("text", "--text", text) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert path.read_bytes() == b"theirs"


def test_a_home_that_is_a_file_is_one_line_and_nothing_is_measured(run, tmp_path, monkeypatch, capsys):
    text = tmp_path / "some.txt"
    text.write_text("0 1 2 3.")
    monkeypatch.setenv("KV_PREREG_HOME", str(text))
    monkeypatch.setattr(measuring, "measure", lambda *arguments: pytest.fail("measured"))
    assert run("text", "--text", text) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"BadInput: KV_PREREG_HOME: {text} is a file")
    assert said.count("\n") == 1


def test_a_folder_that_cannot_be_written_is_one_line_and_nothing_is_measured(embedded, monkeypatch, capsys):
    def refused(*arguments, **named):
        raise PermissionError(13, "Permission denied", "/read/only")

    monkeypatch.setattr(os, "mkdir", refused)
    monkeypatch.setattr(measuring, "measure", lambda *arguments: pytest.fail("measured"))
    assert embedded() == 2
    assert capsys.readouterr().err == (
        "PermissionError: /read/only: no permission to open it; change its permissions, or name another\n"
    )


def test_a_programming_error_is_not_taken_for_a_refusal(capsys):
    """It is one line too, which says that it is the command's own fault, and where, and blames no file."""

    def act():
        raise ValueError("ours")

    assert command.execute(False, act) == 70
    said = capsys.readouterr().err
    assert said.startswith("this is a bug in kv-prereg, not in your files: ValueError: ours (test_calibration.py:")
    assert "please report it" in said
    assert said.count("\n") == 1
    assert command.execute(True, act) == 70
    answer = json.loads(capsys.readouterr().out)
    assert answer == {"fault": "ValueError", "why": answer["why"], "exit_status": 70}
    assert said.startswith(answer["why"].partition("(")[0])


def test_what_the_system_refuses_is_one_json_object_too(capsys):
    def act():
        raise OSError(28, "No space left on device")

    assert command.execute(True, act) == 2
    assert json.loads(capsys.readouterr().out) == {
        "refused": "OSError",
        "why": "the disk is full; free some space, then run the same command again",
        "exit_status": 2,
    }
