"""An arm that OpenVINO decodes, with a pipeline that is played: rows, bytes after every step, refusals.

tests/peers/test_openvino.py decodes with the real one.
"""

import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from protocol.adapters import openvino_arm
from protocol.models import fetch, load

POOL = 1000  # bytes, of which steps use these shares
SHARES = {"kept": [40.0, 40.0, 20.0], "lost": [60.0]}


class Played:
    """A pipeline that says a digit for the problem "kept" and stops at once for "lost"."""

    def __init__(self, words, killed_at=None):
        self.killed_at = killed_at
        self.said = {"kept": [*words.encode("7"), words.eos_token_id], "lost": [words.eos_token_id]}
        self.left, self.requests = [], []

    def add_request(self, number, tokens, config):
        name = [*self.said][number]
        if name == self.killed_at:
            os.kill(os.getpid(), signal.SIGKILL)
        self.requests.append((name, tokens, config))
        self.left = [*SHARES[name]]
        return SimpleNamespace(read_all=lambda: [SimpleNamespace(generated_ids=self.said[name])])

    def has_non_finished_requests(self):
        return bool(self.left)

    def step(self):
        self.share = self.left.pop(0)

    def get_metrics(self):
        return SimpleNamespace(cache_usage=self.share, kv_cache_size_in_bytes=POOL)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "problems.jsonl").write_text(
        '{"id": "kept", "context": "7 ; 8 ;", "question": "3 = ?", "answer": "7"}\n'
        '{"id": "never", "context": "7 ; 9 ;", "question": "2 = ?", "answer": "2"}\n'
        '{"id": "lost", "context": "7 ; 9 ;", "question": "4 = ?", "answer": "4"}\n'
    )
    (tmp_path / "released.json").write_text('{"sums": ["kept", "lost"]}')
    for name in ("openvino", "openvino_genai"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setattr(sys.modules["openvino"], "Tensor", lambda array: array.tolist(), raising=False)
    monkeypatch.setattr(sys.modules["openvino_genai"], "GenerationConfig", SimpleNamespace, raising=False)
    monkeypatch.setattr(fetch, "fetch_gguf", lambda source, home: tmp_path / "model.gguf")
    return tmp_path


def arguments(folder, *options):
    return [
        str(folder / "problems.jsonl"), "--released", str(folder / "released.json"), "--out",
        str(folder / "out/u8.csv"), "--precision", "u8", "--model", "chain-llama", "--grader", "contains", *options,
    ]  # fmt: skip


def run(folder, *options):
    return openvino_arm.main(arguments(folder, *options))


def test_a_row_for_each_released_problem_with_the_bytes_that_its_steps_held(folder, monkeypatch, capsys):
    words = load.tokenizer("chain-llama", folder)
    played = Played(words)
    monkeypatch.setattr(openvino_arm, "open_pipeline", lambda gguf, settings: played)
    assert run(folder, "--max-new-tokens", "5") == 0
    with (folder / "out/u8.csv").open() as file:
        kept, lost = csv.DictReader(file)
    prompts = [tokens for _, (tokens,), _ in played.requests]
    assert [words.decode(prompt[1:7]) for prompt in prompts] == ["7 ; 8 ; 3 =", "7 ; 9 ; 4 ="]
    assert all((config.max_new_tokens, config.do_sample) == (5, False) for *_, config in played.requests)
    assert kept == {
        "id": "kept",
        "score": "1",
        "question": "3 = ?",
        "answer": words.decode(played.said["kept"], skip_special_tokens=True),
        "prompt_tokens": str(len(prompts[0])),
        "new_tokens": str(len(played.said["kept"])),
        "mean_cache_bytes": "333",  # (400 + 400 + 200) / 3
        "last_cache_bytes": "200",
    }
    assert (lost["id"], lost["score"], lost["answer"], lost["mean_cache_bytes"]) == ("lost", "0", "", "600")
    assert "1 of 2 right" in capsys.readouterr().out


KILLED = """
import sys
from types import ModuleType, SimpleNamespace

for name in ("openvino", "openvino_genai"):
    sys.modules[name] = ModuleType(name)
sys.modules["openvino"].Tensor = lambda array: array.tolist()
sys.modules["openvino_genai"].GenerationConfig = SimpleNamespace

from protocol.adapters import openvino_arm
from protocol.models import fetch, load
from test_openvino_arm import Played

fetch.fetch_gguf = lambda source, home: home
openvino_arm.open_pipeline = lambda gguf, settings: Played(load.tokenizer("chain-llama", gguf), killed_at="lost")
openvino_arm.main(sys.argv[1:])
"""


@pytest.fixture
def killed(folder):
    """The folder of a process that was killed while it decoded the second of two problems."""
    path = os.pathsep.join((str(Path(__file__).parent), str(Path(openvino_arm.__file__).parents[2])))
    process = subprocess.run(
        [sys.executable, "-c", KILLED, *arguments(folder)], env={**os.environ, "PYTHONPATH": path}, capture_output=True
    )
    assert process.returncode == -signal.SIGKILL, process.stderr.decode()
    return folder


def test_a_run_that_was_killed_goes_on_after_its_last_row(killed, tmp_path, monkeypatch):
    unfinished = killed / "out/u8.csv.unfinished"
    assert not (killed / "out/u8.csv").exists()
    settings, row = map(json.loads, unfinished.read_text().splitlines())
    assert (settings["--precision"], row["id"], row["score"]) == ("u8", "kept", "1")
    with unfinished.open("a") as file:
        file.write('{"id": "lost", "sco')  # a write that was cut short
    words = load.tokenizer("chain-llama", tmp_path)
    played = Played(words)
    monkeypatch.setattr(openvino_arm, "open_pipeline", lambda gguf, settings: played)
    notes = []
    monkeypatch.setattr(openvino_arm, "note", notes.append)
    assert run(killed) == 0
    assert [name for name, *_ in played.requests] == ["lost"]
    assert notes == [f"{killed / 'out/u8.csv'}: continues after 1 of 2 problems"]
    assert [path.name for path in (killed / "out").iterdir()] == ["u8.csv"]
    continued = (killed / "out/u8.csv").read_bytes()
    (killed / "out/u8.csv").unlink()
    whole = Played(words)
    monkeypatch.setattr(openvino_arm, "open_pipeline", lambda gguf, settings: whole)
    assert run(killed) == 0
    assert [name for name, *_ in whole.requests] == ["kept", "lost"]
    assert (killed / "out/u8.csv").read_bytes() == continued


def test_rows_of_another_run_are_left_as_they_are(killed, monkeypatch, capsys):
    monkeypatch.setattr(openvino_arm, "open_pipeline", lambda gguf, settings: pytest.fail("decoded"))
    unfinished = killed / "out/u8.csv.unfinished"
    begun = unfinished.read_bytes()
    assert run(killed, "--threads", "2") == run(killed, "--max-new-tokens", "9") == 2
    refused = capsys.readouterr().err
    assert (
        "u8.csv.unfinished: was started with a different --threads; continue with the same settings, or delete it"
        in refused
    )
    assert "was started with a different --max-new-tokens;" in refused
    (killed / "released.json").write_text('{"sums": ["lost", "kept"]}')
    assert run(killed) == 2
    assert "was started with a different --released;" in capsys.readouterr().err
    assert unfinished.read_bytes() == begun
    unfinished.write_bytes(b"mine\n")
    assert run(killed) == 2
    assert "is not a file of an unfinished run" in capsys.readouterr().err
    assert unfinished.read_bytes() == b"mine\n"
    settings, row = begun.splitlines()
    (killed / "released.json").write_text('{"sums": ["kept", "lost"]}')
    unfinished.write_bytes(settings + b"\n" + row.replace(b"kept", b"never") + b"\n")
    assert run(killed) == 2
    assert "has rows of other problems" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--keep", "100"), "--keep 100: give a multiple of 32 above 64"),
        (("--keep", "64"), "--keep 64: give a multiple of 32 above 64"),
        (("--max-new-tokens", "0"), "--max-new-tokens and --threads: give at least 1"),
    ],
)
def test_settings_that_openvino_cannot_have_are_refused_before_it_is_loaded(folder, capsys, options, said):
    assert run(folder, *options) == 2
    assert said in capsys.readouterr().err
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    ("released", "said"),
    [
        ({"sums": ["kept", "another"]}, "1 of its ids are not in the problem file, for example 'another'"),
        ({"sums": []}, "is not a released.json with one task"),
        ({"sums": 5}, "is not a released.json with one task"),
        ({"a": ["kept"], "b": ["lost"]}, "is not a released.json with one task"),
        (["kept"], "is not a released.json with one task"),
    ],
)
def test_released_problems_that_the_file_does_not_have_are_refused(folder, monkeypatch, capsys, released, said):
    monkeypatch.setattr(openvino_arm, "open_pipeline", lambda gguf, settings: pytest.fail("decoded"))
    (folder / "released.json").write_text(json.dumps(released))
    assert run(folder) == 2
    assert said in capsys.readouterr().err


def test_a_file_that_exists_is_left_and_a_missing_engine_is_named(folder, capsys):
    (folder / "out").mkdir()
    (folder / "out/u8.csv").write_text("mine")
    assert run(folder) == 2
    assert "exists already and is never overwritten" in capsys.readouterr().err
    assert (folder / "out/u8.csv").read_text() == "mine"
    (folder / "out/u8.csv").unlink()
    sys.modules["openvino_genai"] = None  # the fixture puts back what stood there
    assert run(folder) == 2
    assert "pip install '.[run,openvino]'" in capsys.readouterr().err
    assert not [*(folder / "out").iterdir()]


def test_only_a_packaged_model_is_a_gguf_file(tmp_path):
    with pytest.raises(fetch.BadInput, match="is not a GGUF file; use smollm2-135m, which is one"):
        fetch.fetch_gguf("chain-llama", tmp_path)


def test_a_gguf_file_that_was_changed_is_named_with_what_mends_it(tmp_path):
    (tmp_path / "gguf").mkdir()
    (tmp_path / "gguf/SmolLM2-135M-Instruct.Q4_1.gguf").write_bytes(b"another")
    with pytest.raises(
        fetch.Drifted, match=r"Q4_1\.gguf: differs from the pinned file; delete it and run the command again"
    ):
        fetch.fetch_gguf("smollm2-135m", tmp_path)
