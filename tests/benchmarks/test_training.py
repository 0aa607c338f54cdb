"""Training the embedded models: what is asked for in a batch, and a run small enough to watch."""

import itertools
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from sampled import sampled

import policies
from benchmarks.embedded import train, train_programs, vocabulary
from protocol import engine
from protocol.formats.refusals import Drifted
from protocol.models import checksums
from protocol.models.load import load

ROOT = Path(__file__).resolve().parents[2]
WORDS = vocabulary.tokenizer()
# No drill, no chain that must be passed: only the last three updates.
TINY = ["--most-pairs", "0", "--longest", "1", "--polish", "3", "--width", "32", "--batch", "2"]


def text(ids: torch.Tensor) -> list[str]:
    return WORDS.convert_ids_to_tokens(ids.tolist())


def test_a_drill_asks_for_the_value_that_stood_behind_the_key():
    ids, labels = train.drill(4, 6, WORDS, random.Random(1))
    assert ids.shape == labels.shape == (6, 1 + 2 * (4 + train.QUERIES))
    for row, aims in zip(ids, labels, strict=True):
        pairs = dict(zip(text(row[1:9:2]), text(row[2:10:2]), strict=True))
        assert len(pairs) == 4
        asked = (aims != train.NOT_SCORED).nonzero().flatten().tolist()
        assert asked == list(range(10, len(row), 2))
        for at in asked:
            assert text(aims[at : at + 1]) == [pairs[text(row)[at - 1]]]


def test_a_chain_is_scored_from_its_first_step_to_the_end_of_the_answer():
    ids, labels = train.chains(5, 3, 4, WORDS, random.Random(2))
    for row, aims in zip(ids, labels, strict=True):
        first = text(row).index("<think>") + 1
        assert text(row)[first] == "from"
        assert text(row)[-1] == "</s>"
        assert (aims[:first] == train.NOT_SCORED).all()
        assert torch.equal(aims[first:], row[first:])
        assert WORDS.unk_token_id not in row


def test_an_update_lowers_the_loss_on_its_own_batch():
    network = train.build(train.Recipe("llama", width=32), WORDS)
    optimiser = torch.optim.AdamW(network.parameters(), lr=1e-2)
    batch = train.drill(2, 4, WORDS, random.Random(0))
    losses = [train.learn(network, optimiser, *batch).loss for _ in range(30)]
    assert losses[-1] < losses[0] / 2


@pytest.mark.parametrize("family", sorted(train.FAMILIES))
def test_a_tiny_run_leaves_a_folder_that_loads_and_decodes(family, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(train, "PASSING", 0)
    folder = tmp_path / "made"
    assert train.main([family, str(folder), *TINY]) == 0
    assert "polish, 0 to go: after 3 updates" in capsys.readouterr().out
    told = json.loads((folder / "training.json").read_text())
    assert (told["recipe"]["family"], told["recipe"]["width"]) == (family, 32)
    checksums.verify(folder, "made", "train again")
    model = load(f"path:{folder}", tmp_path)
    assert model.network.config.model_type == family
    prompt = engine.Prompt(tuple(WORDS("<s> ba >de")["input_ids"]), ())
    lane = engine.Lane("one", policies.get("full"), None, 0)
    ran = engine.run(model, [engine.Request("p", prompt, (lane,))], max_new_tokens=3)
    assert len(ran.answers[0].outcomes[0].token_ids) <= 3
    (folder / "model.safetensors").write_bytes(b"other")
    with pytest.raises(Drifted, match=r"model\.safetensors"):
        checksums.verify(folder, "made", "train again")


def test_the_same_recipe_gives_the_same_weights(monkeypatch):
    monkeypatch.setattr(train, "PASSING", 0)
    recipe = train.Recipe("qwen2", width=32, batch=2, most_pairs=0, longest=1, polish=2)
    one, other = (train.train(recipe, print)[0].state_dict() for _ in range(2))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_seeds_are_tried_in_turn_and_then_it_is_refused(tmp_path, capsys):
    arguments = ["llama", str(tmp_path / "made"), "--patience", "1", "--width", "32", "--batch", "1"]
    assert train.main(arguments) == 2
    told = capsys.readouterr()
    assert [line.split(":")[0] for line in told.out.splitlines()] == [f"seed {seed}" for seed in range(10)]
    assert told.err == "patience: no look-up with any of 10 seeds; raise it\n"
    assert not (tmp_path / "made").exists()


def test_a_folder_that_exists_is_left_alone(tmp_path, capsys):
    assert train.main(["llama", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"{tmp_path}: exists; name a new folder\n"
    assert not list(tmp_path.iterdir())


TINY_PROGRAMS = ["--updates", "4", "--short", "1", "--tokens", "832", "--width", "64", "--heads", "2"]
TINY_PROGRAMS += ["--kv-heads", "1", "--layers", "1", "--workers", "0"]


@pytest.mark.parametrize("family", sampled(sorted(train_programs.FAMILIES), of=2))
def test_a_training_of_programs_run_again_or_stopped_between_gives_the_same_bytes(
    family, tmp_path, capsys, monkeypatch
):
    """Four updates in one go, in another process, and two and two: the clock ticks whenever it is read."""
    once, twice, elsewhere, tiny = tmp_path / "once", tmp_path / "twice", tmp_path / "elsewhere", TINY_PROGRAMS
    code = f"from benchmarks.embedded.train_programs import main; main({[family, str(elsewhere), *tiny]})"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
    assert train_programs.main([family, str(once), *tiny]) == 0
    with monkeypatch.context() as patched:
        patched.setattr(train_programs.time, "monotonic", itertools.count().__next__)
        assert train_programs.main([family, str(twice), *tiny, "--stop-after", "3.5"]) == train_programs.STOPPED
    assert "2 of 4 updates" in capsys.readouterr().out
    assert not twice.exists()
    assert train_programs.main([family, str(twice), *tiny, "--rate", "0.5"]) == 2
    assert f"is of another recipe, {{'family': '{family}'" in capsys.readouterr().err
    assert train_programs.main([family, str(twice), *tiny]) == 0
    assert len({(folder / "model.safetensors").read_bytes() for folder in (once, twice, elsewhere)}) == 1
    assert not twice.with_suffix(".checkpoint").exists()
    assert train_programs.main([family, str(once), *tiny]) == 2
    assert "exists; name a new folder" in capsys.readouterr().err


def test_rows_of_programs_are_scored_from_the_end_of_the_prompt_and_at_least_half_full():
    words = vocabulary.programs_words()
    names = {number: word for word, number in words.items()}
    for length in train_programs.LENGTHS:
        ids, labels = train_programs.rows(length, 5, words, random.Random(length))
        assert ids.shape == (5, length)
        for row, aims in zip(ids.tolist(), labels.tolist(), strict=True):
            text = [names[number] for number in row]
            end, begin = text.index("</s>"), text.index("<think>")
            assert length < 2 * (end + 1) <= 2 * length
            assert set(text[end + 1 :]) <= {"<pad>"}
            assert "<unk>" not in text
            scored = [place for place, aim in enumerate(aims) if aim != train_programs.NOT_SCORED]
            assert scored == list(range(begin + 1, end + 1))
            assert all(aims[place] == row[place] for place in scored)
