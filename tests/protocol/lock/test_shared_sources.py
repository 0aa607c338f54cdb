"""Studies that have ended share their sources: each version of a file once, and every audit as before."""

import io
import lzma
import shutil
import tarfile

import finished_study
import pytest

from protocol.evidence import pack_study
from protocol.evidence.audit import auditor
from protocol.evidence.registration import Registration
from protocol.formats.refusals import Tampered
from protocol.lock import bundle, closure

OTHER_JUDGE = finished_study.JUDGE + "\n# of another study\n"


@pytest.fixture
def shelf(tmp_path):
    """Two studies that have ended: the second one with another judge, all else the same."""
    finished_study.finished(tmp_path / "registrations" / "first")
    shutil.rmtree(tmp_path / "registrations" / "tree")
    finished_study.finished(tmp_path / "registrations" / "second", judge=OTHER_JUDGE)
    return tmp_path / "registrations"


def share(shelf):
    for name in ("first", "second"):
        [*pack_study.pack(shelf / name, share_sources=True)]
    return shelf / bundle.SHARED


def read(archive):
    with tarfile.open(archive) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}


def write(archive, members):
    """An archive of (member, content); a member is a name, or what tarfile writes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz") as tar:
        for name, data in members:
            member = name if isinstance(name, tarfile.TarInfo) else tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    archive.write_bytes(buffer.getvalue())


def test_audits_say_the_same_and_each_version_is_stored_once(shelf):
    studies = [Registration(shelf / name) for name in ("first", "second")]
    before = [auditor.audit(study) for study in studies]
    versions = {(name, digest) for study in studies for name, digest in study.lock.content["sources"].items()}
    archive = share(shelf)
    after = [auditor.audit(Registration(study.folder)) for study in studies]
    assert not any(study.folder.joinpath(bundle.NAME).exists() for study in studies)
    for old, new in zip(before, after, strict=True):
        assert [finding[:2] for finding in new] == [finding[:2] for finding in old]
        changed = {finding.item: finding.detail for finding, other in zip(new, old, strict=True) if finding != other}
        assert changed.keys() <= {"files", "sources"}
        assert "in sources.tar.xz match the lock" in changed["sources"]
    assert {tuple(name.rsplit("/", 1)) for name in read(archive)} == versions
    assert len(versions) == len(studies[0].lock.content["sources"]) + 1  # the two judges


def test_each_study_gets_its_own_tree_back(shelf, tmp_path):
    share(shelf)
    for name, judge in (("first", finished_study.JUDGE), ("second", OTHER_JUDGE)):
        study = Registration(shelf / name)
        bundle.extract(study.bundle, study.lock.content["sources"], tmp_path / name)
        assert closure.sources(tmp_path / name) == study.lock.content["sources"]
        assert (tmp_path / name / "analysis" / "judge.py").read_text() == judge


def test_a_second_packing_changes_nothing(shelf):
    archive = share(shelf)
    before = archive.read_bytes()
    assert share(shelf).read_bytes() == before


def test_a_study_that_is_moved_away_without_its_archive_lacks_its_sources(shelf, tmp_path):
    share(shelf)
    away = shutil.copytree(shelf / "first", tmp_path / "away" / "first")
    with pytest.raises(Tampered, match=r"sources\.zip: missing, and no sources\.tar\.xz is beside the folder"):
        _ = Registration(away).source_files
    shutil.copyfile(shelf / bundle.SHARED, away.parent / bundle.SHARED)
    assert not auditor.failed_items(auditor.audit(Registration(away)))


def find(archive, name):
    return next(version for version in read(archive) if version.startswith(name))


def edit(archive):
    members = read(archive)
    name = find(archive, "policies/keep.py/")
    write(archive, [*(members | {name: members[name] + b"# more\n"}).items()])


def remove(archive):
    members = read(archive)
    del members[find(archive, "policies/keep.py/")]
    write(archive, [*members.items()])


def double(archive):
    members = [*read(archive).items()]
    write(archive, [*members, members[0]])


def link(archive):
    member = tarfile.TarInfo("policies/link")
    member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
    write(archive, [*read(archive).items(), (member, b"")])


def sparse(archive):
    member = tarfile.TarInfo("policies/sparse")
    member.pax_headers = {"GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.size": str(1 << 50)}
    member.pax_headers["GNU.sparse.map"] = f"0,0,{1 << 50},0"
    write(archive, [*read(archive).items(), (member, b"")])


def inflate(archive):
    write(archive, [*read(archive).items(), ("policies/zeros", bytes(bundle.MAX_SHARED_BYTES))])


DAMAGE = {
    edit: r"sources\.tar\.xz: policies/keep\.py",
    remove: r"sources\.tar\.xz: policies/keep\.py",
    double: "occurs twice or is not a plain file",
    link: "'policies/link' occurs twice or is not a plain file",
    sparse: "sparse' occurs twice or is not a plain file|not readable",
    inflate: "bytes once unpacked, which no file of this kind has",
    lambda archive: archive.write_bytes(archive.read_bytes()[:-40]): "not readable: ",
    lambda archive: archive.write_bytes(lzma.compress(b"no archive")): "not readable: ",
    lambda archive: archive.write_bytes(b"no xz"): "not readable: ",
}


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
def test_any_other_archive_is_tampering(shelf, tmp_path, monkeypatch, damage):
    archive = share(shelf)
    monkeypatch.setattr(bundle, "MAX_SHARED_BYTES", 1 << 23)
    damage(archive)
    study = Registration(shelf / "first")
    found = {finding.item: finding for finding in auditor.audit(study)}
    assert found["sources"].status == "failed"
    with pytest.raises(Tampered, match=DAMAGE[damage]):
        bundle.extract(study.bundle, study.lock.content["sources"], tmp_path / "tree")
    assert not (tmp_path / "tree").exists()


def test_versions_that_a_study_does_not_name_are_not_its_sources(shelf):
    """Other studies have other files: they accuse nobody, and no code of theirs is read."""
    archive = share(shelf)
    write(archive, [*read(archive).items(), ("../outside.py", b"1"), ("policies/more.py/" + "0" * 64, b"2")])
    study = Registration(shelf / "first")
    assert study.source_files.keys() == study.lock.content["sources"].keys()
    assert not auditor.failed_items(auditor.audit(study))


def test_a_damaged_archive_of_its_own_is_not_shared(shelf):
    own = shelf / "first" / bundle.NAME
    own.write_bytes(own.read_bytes()[:-30])
    with pytest.raises(Tampered, match=r"sources\.zip: "):
        [*pack_study.pack(shelf / "first", share_sources=True)]
    assert own.exists()
    assert not (shelf / bundle.SHARED).exists()
