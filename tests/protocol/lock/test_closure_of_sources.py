import os
import sys
import zipfile
from importlib import metadata

import finished_study
import pytest
import studies

from protocol.evidence.audit import auditor
from protocol.evidence.audit.items import EXTERNAL_ITEMS
from protocol.evidence.registration import Registration
from protocol.formats.refusals import AlreadyClaimed, BadInput, Drifted, Tampered
from protocol.lock import bundle, closure, installed_files, lock


@pytest.fixture
def root(tmp_path):
    return finished_study.tree(tmp_path / "tree")


def test_an_untracked_helper_an_edit_and_a_lost_file_are_all_named(root):
    locked = closure.sources(root)
    (root / "figures").mkdir()
    (root / "figures" / "helper.py").write_text("SLOTS = 8\n")
    (root / "analysis" / "judge.py").write_text("print(1)\n")
    (root / "splits" / "toy.json").unlink()
    assert closure.differences(locked, closure.sources(root)) == [
        "analysis/judge.py: changed",
        "figures/helper.py: new",
        "splits/toy.json: missing",
    ]


def test_caches_and_other_files_are_no_part_of_the_closure(root):
    before = closure.sources(root)
    for name in ("policies/__pycache__/keep.cpython-311.pyc", "policies/.cache/x.py", "analysis/notes.md", "x.py"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("1\n")
    assert closure.sources(root) == before


def test_compiled_modules_that_python_would_import_are_part_of_it(root):
    (root / "policies" / "fast.so").write_bytes(b"ELF")
    (root / "policies" / "bare.pyc").write_bytes(b"pyc")
    assert {"policies/fast.so", "policies/bare.pyc"} <= set(closure.sources(root))


def test_a_linked_folder_is_refused_because_it_would_be_imported_and_not_hashed(root, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (root / "policies" / "more").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadInput, match="policies/more is a link"):
        closure.sources(root)


def test_environment_has_every_distribution_but_this_one():
    here = installed_files.environment()
    assert here["python"] == ".".join(map(str, sys.version_info[:3]))
    assert here["distributions"]["pytest"]["version"] == metadata.version("pytest")
    assert "kv-prereg" not in here["distributions"]
    assert closure.differences(here, installed_files.environment()) == []


def test_two_builds_of_one_version_differ(tmp_path, monkeypatch):
    def install(record):
        info = tmp_path / "toy_pack-1.0.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy_pack\nVersion: 1.0\n")
        (info / "RECORD").write_text(record)
        return installed_files.environment()

    monkeypatch.syspath_prepend(tmp_path)
    one, two = install("a.py,sha256=1,1\n"), install("a.py,sha256=2,1\n")
    assert one["distributions"]["toy-pack"]["version"] == "1.0"
    assert closure.differences(one, two) == ["distributions/toy-pack/files: changed"]


def test_weights_are_hashed_by_the_name_the_lock_uses(tmp_path):
    (tmp_path / "blob").write_bytes(b"abc")
    # SHA-256 of "abc", FIPS 180-2 appendix B.1
    expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert closure.weights({"model.safetensors": tmp_path / "blob"}) == {"model.safetensors": expected}


def test_the_bundle_has_the_same_bytes_wherever_and_whenever_it_is_made(root, tmp_path):
    other = finished_study.tree(tmp_path / "other")
    os.utime(other / "policies" / "keep.py", (10**9, 10**9))
    (other / "policies" / "keep.py").chmod(0o600)
    digests = set()
    for tree in (root, other):
        folder = tmp_path / f"study of {tree.name}"
        folder.mkdir()
        digests.add(bundle.write(folder, tree, closure.sources(tree)))
    assert len(digests) == 1


def test_a_bundle_gives_the_locked_tree_back(root, tmp_path):
    sources = closure.sources(root)
    bundle.write(tmp_path, root, sources)
    assert bundle.differences(bundle.read(tmp_path / bundle.NAME, sources), sources) == []
    bundle.extract(tmp_path / bundle.NAME, sources, tmp_path / "back")
    assert closure.sources(tmp_path / "back") == sources


def test_a_file_that_changes_while_it_is_locked_is_refused(root, tmp_path):
    sources = closure.sources(root)
    (root / "policies" / "keep.py").write_text("SLOTS = 5\n")
    with pytest.raises(Drifted, match=r"policies/keep\.py"):
        bundle.write(tmp_path, root, sources)
    assert not (tmp_path / bundle.NAME).exists()


@pytest.mark.parametrize("name", ["../out.py", "/out.py", "a/../../out.py", "a\\out.py", "C:out.py", "./out.py"])
def test_a_member_that_leads_outside_is_not_extracted(tmp_path, name):
    with zipfile.ZipFile(tmp_path / bundle.NAME, "w") as archive:
        archive.writestr(name, "1\n")
    with pytest.raises(Tampered, match="points outside"):
        bundle.extract(tmp_path / bundle.NAME, {name: closure.sha256_hex(b"1\n")}, tmp_path / "in" / "deep")
    assert [path.name for path in tmp_path.rglob("*")] == [bundle.NAME]


def test_a_member_too_many_is_found(root, tmp_path):
    sources = closure.sources(root)
    bundle.write(tmp_path, root, sources)
    with zipfile.ZipFile(tmp_path / bundle.NAME, "a") as archive:
        archive.writestr("numpy.py", "1\n")
    assert bundle.differences(bundle.read(tmp_path / bundle.NAME, sources), sources) == ["numpy.py: new"]
    with pytest.raises(Tampered, match=r"numpy\.py"):
        bundle.extract(tmp_path / bundle.NAME, sources, tmp_path / "back")


def test_a_study_is_locked_once(tmp_path):
    folder = tmp_path / "study"
    held = finished_study.locked(folder)
    with studies.unchanged(folder):
        with pytest.raises(AlreadyClaimed, match="locked already"):
            lock.write(folder, held.content)
        with pytest.raises(AlreadyClaimed, match="locked already"):
            bundle.write(folder, folder.parent / "tree", held.content["sources"])


def test_the_lock_digest_is_of_the_canonical_bytes_without_the_newline(tmp_path):
    held = finished_study.locked(tmp_path / "study")
    data = (tmp_path / "study" / lock.NAME).read_bytes()
    assert held.digest == closure.sha256_hex(data.removesuffix(b"\n"))


def test_a_lock_from_before_the_drawings_were_sources_still_audits(tmp_path):
    folder = tmp_path / "study"
    finished_study.finished(folder)
    (tmp_path / "tree" / "figures").mkdir()
    (tmp_path / "tree" / "figures" / "forest.py").write_text("1\n")
    assert not any(name.startswith("figures/") for name in lock.read(folder).content["sources"])
    inside = [one.status for one in auditor.audit(Registration(folder)) if one.item not in EXTERNAL_ITEMS]
    assert set(inside) <= {"held", "not run"}
