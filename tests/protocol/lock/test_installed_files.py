import base64
import hashlib
import json
import os
import site
import sys
import sysconfig
import time
from pathlib import Path

import pytest

from protocol.lock import closure, digest_cache, installed_files, installed_versions


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """A site folder with one distribution, `toy`, as an installer leaves it."""
    folder = tmp_path / "site"
    for name, text in {"toy/__init__.py": "ANSWER = 7\n", "toy/data.bin": "x" * 10, "toy.pth": "# none\n"}.items():
        write(folder / name, text)
    write(folder / "toy-1.0.dist-info" / "METADATA", "Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    write(folder / "toy" / "__pycache__" / "__init__.cpython-311.pyc", "whatever")
    list_files(
        folder, "toy", ["toy/__init__.py", "toy/data.bin", "toy.pth"], "toy/__pycache__/__init__.cpython-311.pyc,,"
    )
    # Nothing but this folder, so that a test does not hash everything that is installed here.
    monkeypatch.setattr(sys, "path", [str(folder)])
    monkeypatch.setattr(site, "getsitepackages", lambda: [])
    return folder


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def list_files(folder, name, files, *more):
    """RECORD as the packaging specification has it: unpadded base64 of SHA-256."""
    lines = []
    for file in files:
        data = (folder / file).read_bytes()
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        lines.append(f"{file},sha256={digest},{len(data)}")
    record = f"{name}-1.0.dist-info/RECORD"
    write(folder / record, "\n".join([*lines, *more, f"{record},,"]) + "\n")


def altered():
    return installed_files.scan_packages(closure.PACKAGES).altered


def sha256(text):
    return hashlib.sha256(text.encode()).hexdigest()


def test_what_an_installer_leaves_is_not_altered(packages):
    found = installed_files.scan_packages(closure.PACKAGES)
    record = (packages / "toy-1.0.dist-info" / "RECORD").read_text()
    assert found.distributions == {"toy": {"version": "1.0", "files": sha256(record)}}
    assert (found.altered, found.editable) == ({}, {})
    assert installed_files.format_altered(found.altered) == []


def test_an_edit_a_loss_and_a_new_module_are_named_with_their_bytes(packages):
    write(packages / "toy" / "__init__.py", "ANSWER = 8\n")
    (packages / "toy" / "data.bin").unlink()
    write(packages / "toy" / "extra.py", "1\n")
    assert altered() == {
        "toy/__init__.py": sha256("ANSWER = 8\n"),
        "toy/data.bin": "missing",
        "toy/extra.py": sha256("1\n"),
    }
    (said,) = installed_files.format_altered(altered())
    assert said.endswith("toy/__init__.py, toy/data.bin, toy/extra.py")


@pytest.mark.parametrize(
    "name", ["sitecustomize.py", "evil.pth", "torch.so", "numpy/__init__.py", "toy/bare.pyc", "b c/d-e/f.py"]
)
def test_what_could_shadow_or_patch_a_module_is_found(packages, name):
    write(packages / name, "1\n")
    assert altered() == {name: sha256("1\n")}


@pytest.mark.parametrize(
    "name", ["toy/__pycache__/more.pyc", "toy/notes.txt", "~oy/__init__.py", "old-1.0.dist-info/x.py"]
)
def test_caches_texts_and_what_an_installer_left_behind_are_no_noise(packages, name):
    write(packages / name, "1\n")
    assert altered() == {}


def test_a_module_that_is_listed_without_a_digest_is_hashed(packages):
    """Else a line without a digest, locked with its RECORD, would allow any later edit."""
    write(packages / "toy" / "free.py", "1\n")
    list_files(packages, "toy", ["toy/__init__.py", "toy/data.bin", "toy.pth"], "toy/free.py,,")
    assert altered() == {"toy/free.py": sha256("1\n")}


def test_a_package_that_is_reached_through_a_link_is_found(packages, tmp_path):
    write(tmp_path / "elsewhere" / "__init__.py", "1\n")
    (packages / "linked").symlink_to(tmp_path / "elsewhere")
    (packages / "toy" / "again").symlink_to(packages / "toy")  # a loop
    assert altered() == {"linked/__init__.py": sha256("1\n")}


def test_a_file_larger_than_a_piece_is_compared_whole(packages):
    large = packages / "toy" / "data.bin"
    large.write_bytes(bytes(2**21 + 1))
    list_files(packages, "toy", ["toy/__init__.py", "toy/data.bin", "toy.pth"])
    assert altered() == {}
    large.write_bytes(bytes(2**21) + b"\1")
    assert list(altered()) == ["toy/data.bin"]


def test_names_beyond_ascii_can_be_locked(packages):
    write(packages / "élan.py", "1\n")
    assert altered() == {"\\xe9lan.py": sha256("1\n")}


def test_what_lies_where_a_command_is_typed_is_no_part_of_it(packages, tmp_path, monkeypatch):
    write(tmp_path / "work" / "other-1.0.dist-info" / "METADATA", "Metadata-Version: 2.1\nName: other\n")
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr(sys, "path", ["", os.getcwd(), *sys.path])
    assert list(installed_versions.versions()) == ["toy"]


def test_an_editable_install_of_this_project_is_kept_apart_and_its_own_modules_left_to_the_sources(packages):
    write(packages / "__editable___kv_prereg_finder.py", "1\n")
    write(packages / "protocol" / "confirm.py", "2\n")
    write(packages / "kv_prereg-1.0.dist-info" / "METADATA", "Metadata-Version: 2.1\nName: kv-prereg\nVersion: 1.0\n")
    list_files(packages, "kv_prereg", ["__editable___kv_prereg_finder.py", "protocol/confirm.py"])
    write(packages / "__editable___kv_prereg_finder.py", "3\n")
    found = installed_files.scan_packages(closure.PACKAGES)
    assert found.editable == {"__editable___kv_prereg_finder.py": sha256("3\n")}
    assert (list(found.distributions), found.altered) == (["toy"], {})


def test_an_edit_of_the_standard_library_changes_its_digest(tmp_path, monkeypatch):
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    write(tmp_path / "random.py", "1\n")
    before = installed_files.hash_standard_library()
    for name in ("site-packages/x.py", "test/x.py", "__pycache__/random.pyc"):
        write(tmp_path / name, "1\n")
    assert installed_files.hash_standard_library() == before
    write(tmp_path / "random.py", "2\n")
    assert installed_files.hash_standard_library() != before


def test_this_environment_is_as_it_was_installed_or_says_what_is_not():
    here = installed_files.environment()
    assert set(here["own"]) <= {name for name in here["own"] if "kv_prereg" in name}
    where = Path(sysconfig.get_path("purelib"))
    for name, digest in here["altered"].items():
        path = where / name
        assert digest == (hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else "missing")
    assert len(here["library"]) == 64


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"abc")
    os.utime(path, (10**9, 10**9))
    return path


def test_a_file_is_not_read_again_until_its_identity_changes(model, tmp_path, monkeypatch):
    home, named = tmp_path / "home", {"tiny": {"model.safetensors": model}}
    later = time.time() + 60
    monkeypatch.setattr(digest_cache.time, "time", lambda: later)
    first = digest_cache.weight_digests(named, home)
    assert first == {"tiny": {"model.safetensors": hashlib.sha256(b"abc").hexdigest()}}
    with monkeypatch.context() as patched:
        patched.setattr(digest_cache.files, "sha256", lambda path: pytest.fail(f"{path} was read"))
        assert digest_cache.weight_digests(named, home) == first
    model.write_bytes(b"abd")
    os.utime(model, (10**9, 10**9))  # same size, same time of modification: the change of the inode tells
    assert digest_cache.weight_digests(named, home) == {
        "tiny": {"model.safetensors": hashlib.sha256(b"abd").hexdigest()}
    }


def test_a_file_that_was_just_written_is_not_remembered(model, tmp_path):
    digest_cache.weight_digests({"tiny": {"model.safetensors": model}}, tmp_path / "home")
    assert not (tmp_path / "home" / digest_cache.NAME).exists()


@pytest.mark.parametrize("text", ["", "[]", "{", json.dumps({"a": 1}), json.dumps({"a": ["x"]})])
def test_a_damaged_memory_is_as_good_as_none(model, tmp_path, text):
    write(tmp_path / "home" / digest_cache.NAME, text)
    found = digest_cache.weight_digests({"tiny": {"m": model}}, tmp_path / "home")
    assert found["tiny"]["m"] == hashlib.sha256(b"abc").hexdigest()
