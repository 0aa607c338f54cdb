"""Which model a source names, where it belongs, and what is refused before anything is opened."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from looped import looped

from protocol.formats import files
from protocol.formats.refusals import BadInput
from protocol.models import sources

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def a_folder(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).write_bytes(b"{}")
    return root


def test_an_unknown_model_is_answered_with_the_nearest_name():
    with pytest.raises(BadInput, match=r"'smollm2-136m'.*did you mean 'smollm2-135m'"):
        sources.parse("smollm2-136m")


def test_a_model_that_no_name_is_near_to_is_answered_with_all_names():
    with pytest.raises(BadInput) as refusal:
        sources.parse("gpt2")
    assert "did you mean" not in str(refusal.value)
    assert all(name in str(refusal.value) for name in sources.MODELS)


@looped(
    ("source", "written"),
    [
        ("owner/name", "write hf:owner/name@<commit>"),
        ("owner/name@main", "write hf:owner/name@<commit>"),
        ("https://huggingface.co/owner/name/tree/main", "write hf:owner/name@<commit>"),
        (f"owner/name@{40 * 'a'}", f"write hf:owner/name@{40 * 'a'}"),
        ("/models/mine", "write path:/models/mine"),
    ],
)
def test_a_repository_or_a_folder_is_answered_with_its_source(source, written):
    with pytest.raises(BadInput, match=re.escape(written)):
        sources.parse(source)


@looped(
    "source",
    [
        "hf:owner/name",
        "hf:owner/name@main",
        "hf:owner/name@v1.0",
        f"hf:owner/name@{COMMIT[:39]}",
        f"hf:owner/name@{COMMIT}0",
        f"hf:owner/name@{COMMIT.upper()}",
        f"hf:owner/name@{COMMIT}\n",
        f"hf:name@{COMMIT}",
        f"hf:../name@{COMMIT}",
        f"hf:owner/name/more@{COMMIT}",
    ],
)
def test_a_hub_source_needs_owner_name_and_a_full_commit(source):
    with pytest.raises(BadInput, match="40 hex digits"):
        sources.parse(source)


def test_each_kind_of_source_has_its_place(tmp_path):
    assert sources.model_folder("smollm2-135m", tmp_path) == tmp_path / "models" / "smollm2-135m"
    assert sources.model_folder(f"hf:a/b@{COMMIT}", tmp_path) == tmp_path / "models" / f"a--b@{COMMIT}"
    assert sources.model_folder("path:/weights", tmp_path) == Path("/weights")


def test_a_model_that_was_not_fetched_is_refused_with_the_command_that_fetches_it(tmp_path):
    with pytest.raises(BadInput, match=r"run: kv-prereg models fetch smollm2-135m"):
        sources.locate("smollm2-135m", tmp_path)


def test_a_folder_source_is_refused_unless_it_exists_and_is_named(tmp_path):
    with pytest.raises(BadInput, match="name an existing folder"):
        sources.locate(f"path:{tmp_path / 'none'}", tmp_path)
    with pytest.raises(BadInput, match="does not name a folder"):
        sources.locate("path:", tmp_path)


@looped("pickled", ["pytorch_model.bin", "model.pt", "model.pth", "model.ckpt", "model.pkl"])
def test_a_folder_with_a_pickle_is_refused_by_the_name_of_the_file(tmp_path, pickled):
    a_folder(tmp_path, "model.safetensors", "config.json", pickled)
    with pytest.raises(BadInput, match=f"{pickled} is a pickle"):
        sources.locate(f"path:{tmp_path}", tmp_path)


@pytest.mark.parametrize(("present", "lacking"), [("config.json", "safetensors"), ("m.safetensors", "config.json")])
def test_a_folder_without_weights_or_configuration_is_refused(tmp_path, present, lacking):
    a_folder(tmp_path, present)
    with pytest.raises(BadInput, match=f"no .*{lacking}"):
        sources.locate(f"path:{tmp_path}", tmp_path)


def test_files_lists_what_can_change_an_output_and_nothing_else(tmp_path):
    used = {"config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja", "merges.txt", "spiece.model"}
    a_folder(tmp_path, *used, "README.md", "SHA256SUMS", "modeling.py")
    (tmp_path / "folder.json").mkdir()
    assert sources.model_files(f"path:{tmp_path}", tmp_path) == {name: tmp_path / name for name in used}


def test_the_home_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("KV_PREREG_HOME", str(tmp_path))
    assert files.cache_home() == tmp_path
    monkeypatch.delenv("KV_PREREG_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert files.cache_home() == tmp_path / ".cache" / "kv-prereg"


def test_naming_listing_and_help_need_no_torch():
    code = "import sys, protocol.models.__main__ as m; m.main(['list']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
