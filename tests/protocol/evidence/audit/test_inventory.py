"""Whatever lies in the folder of a registration is evidence, derived from it, or named as neither."""

import os
import shutil
import stat

import finished_study
import pytest

from figures.report_page import glossary
from protocol import witnesses
from protocol.evidence.audit import inventory
from protocol.evidence.registration import Registration
from protocol.formats.refusals import Tampered
from protocol.lock import git_attributes

DOCUMENTS = ["protocol.toml", "lock.json", "sources.zip", "ledger.jsonl", "claim.json", "seal.json"]
DOCUMENTS += ["verdict.json"]
SIDE = "0" * 64 + ".json.gz"


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """The toy study, with drawings, proofs and a signature of which only the names count here."""
    folder = tmp_path_factory.mktemp("registrations") / "study"
    finished_study.finished(folder)
    for name in ("anchors/lock.ots", "anchors/headers/900000.hex", "figures/forest.png", "report.html"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"?")
    (folder / "lock.json.sig").write_bytes(b"?")
    return folder


@pytest.fixture
def folder(original, tmp_path):
    return shutil.copytree(original, tmp_path / "study")


def accounted(folder):
    return inventory.classify(Registration(folder))


def check(folder):
    return inventory.check(Registration(folder))


def put(path, data=b"x"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def test_every_file_of_a_finished_study_is_evidence_or_derived(folder):
    sides = {path.name for path in (folder / "records" / "trajectories").iterdir()}
    evidence = {
        *DOCUMENTS,
        "lock.json.sig",
        "records/shard-0.jsonl",
        *(f"records/trajectories/{name}" for name in sides),
        "anchors/lock.ots",
        "anchors/headers/900000.hex",
    }
    derived = {"figures/forest.png": "derived", "report.html": "derived"}
    assert accounted(folder) == dict.fromkeys(evidence, "evidence") | derived
    files = [path for path in folder.rglob("*") if path.is_file()]
    share = round(100 * 2 / sum(path.stat().st_size for path in files))
    assert check(folder) == (
        f"evidence: {len(files) - 2} files; drawn from it: report.html and 1 file in figures/ "
        f"({share} % of the bytes), compared only with --draw"
    )


def test_the_names_of_drawings_are_those_that_our_commands_write():
    drawn = {f"{name}.{suffix}" for name in glossary.DRAWINGS for suffix in ("svg", "png")}
    assert drawn | {"collapse.md"} == inventory.DRAWINGS


def test_the_proofs_are_those_of_the_witnesses(folder):
    known = {one.suffix for one in witnesses.make_witnesses(Registration(folder))}
    assert known <= set(inventory.PROOFS)
    assert set(inventory.PROOFS) == {witnesses.OpenTimestamps.suffix, "tsr", "git.json", "sigstore.json"}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("README.md", "README.md"),
        (".hidden", ".hidden"),
        ("lock.json~", "lock.json~"),
        (".claim.json.swp", ".claim.json.swp"),
        (".seal.json.0123abcd", ".seal.json.0123abcd"),
        ("Lock.json", "Lock.json"),
        ("\u0441laim.json", r"'\u0441laim.json'"),
        ("seal\u202ejson.", r"'seal\u202ejson.'"),
        ("a\x1b[2Jb", r"'a\x1b[2Jb'"),
        ("figures/extra.svg", "figures/extra.svg"),
        ("figures/.forest.png", "figures/.forest.png"),
        ("selection.json", "selection.json"),
        (".gitattributes", ".gitattributes"),
        ("records.old/shard-0.jsonl", "records.old/"),
        ("figures/records/shard-0.jsonl", "figures/records/"),
        ("notes/lock.json", "notes/"),
    ],
)
def test_what_nobody_vouches_for_is_named_and_fails_nothing(folder, name, said):
    put(folder / name)
    assert "unknown" in accounted(folder).values()
    assert check(folder).endswith(f"; NOT VOUCHED FOR: {said}")


def test_an_empty_folder_is_named(folder):
    (folder / "empty").mkdir()
    assert check(folder).endswith("NOT VOUCHED FOR: empty/")


def test_of_many_the_first_are_named_and_all_are_counted(folder):
    for number in range(8):
        put(folder / f"note-{number}")
    assert check(folder).endswith("note-0, note-1, note-2, note-3, note-4 and 3 more")


def test_what_keeps_git_from_changing_evidence_is_known(folder):
    git_attributes.write(folder)
    assert accounted(folder)[".gitattributes"] == "evidence"


@pytest.mark.parametrize(
    "name",
    [
        "records/shard-0.jsonl.bak",
        "records/.hidden",
        "records/other/shard-0.jsonl",
        "records/trajectories/note",
        "probe/note",
        "probe/trajectories/deeper/note",
        "anchors/claim.proof",
        "anchors/headers/note",
    ],
)
def test_among_evidence_nothing_else_may_lie(folder, name):
    put(folder / name)
    with pytest.raises(Tampered, match="is not a file that kv-prereg writes as evidence; move it out of"):
        check(folder)


@pytest.mark.parametrize(
    "name", ["records/trajectories/.x.json.gz.0123abcd", f"probe/trajectories/{SIDE}", "anchors/.x.0123abcd"]
)
def test_what_a_killed_run_leaves_is_named_and_fails_nothing_here(folder, name):
    put(folder / name)
    assert check(folder).endswith(f"NOT VOUCHED FOR: {name}")


def test_where_records_are_damaged_side_files_are_known_by_their_names(folder):
    (folder / "records" / "shard-0.jsonl").write_bytes(b"{}\n")
    kinds = accounted(folder)
    assert set(kinds.values()) == {"evidence", "derived"}


def linked(path):
    elsewhere = path.parent.parent / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def piped(path):
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    os.mkfifo(path)


def served(path):
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    os.mknod(path, stat.S_IFSOCK | 0o600)


OURS = [*DOCUMENTS, "lock.json.sig", "records", "records/shard-0.jsonl", "records/trajectories", "anchors"]
OURS += ["anchors/headers", "anchors/lock.ots", "figures", "figures/forest.png", "report.html"]


@pytest.mark.parametrize(
    ("replace", "kind"), [(linked, "a link"), (piped, "a pipe"), (served, "a socket")], ids=["link", "pipe", "socket"]
)
@pytest.mark.parametrize("name", OURS)
def test_a_link_or_a_pipe_in_the_place_of_ours_is_named_and_nothing_is_opened(folder, name, replace, kind, monkeypatch):
    replace(folder / name)
    monkeypatch.setattr("builtins.open", None)
    monkeypatch.setattr("io.open", None)
    monkeypatch.setattr(os, "open", None)
    with pytest.raises(Tampered, match=f"^{name}: is {kind}; put a real (file|folder) there$"):
        check(folder)


@pytest.mark.parametrize("name", ["lock.json", "verdict.json", "report.html"])
def test_a_folder_in_the_place_of_a_file_is_named(folder, name):
    (folder / name).unlink()
    (folder / name).mkdir()
    with pytest.raises(Tampered, match=f"^{name}: is a folder; put a real file there$"):
        check(folder)


@pytest.mark.parametrize("name", ["records", "probe", "figures"])
def test_a_file_in_the_place_of_a_folder_is_named(folder, name):
    shutil.rmtree(folder / name, ignore_errors=True)
    put(folder / name)
    with pytest.raises(Tampered, match=f"^{name}: is a file; put a real folder there$"):
        check(folder)


@pytest.mark.parametrize(("replace", "kind"), [(linked, "a link"), (piped, "a pipe")], ids=["link", "pipe"])
def test_one_by_another_name_is_never_opened_and_fails_nothing(folder, replace, kind):
    put(folder / "latest")
    replace(folder / "latest")
    assert check(folder).endswith(f"NOT VOUCHED FOR: latest ({kind})")
