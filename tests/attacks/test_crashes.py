"""The machine dies, the disk is full, the folder cannot be written: nothing acknowledged is lost or counted
twice.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import crashing
import finished_study
import pytest
import studies

from protocol.evidence import records
from protocol.evidence.audit import auditor
from protocol.evidence.registration import Registration

HERE = Path(__file__).resolve().parent
PATHS = os.pathsep.join(map(str, (studies.ROOT, HERE.parent, HERE)))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("toy") / "study"
    finished_study.finished(folder)
    return Registration(folder).seal.content["outcome"]


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("toy") / "study"
    finished_study.locked(folder)
    return folder


def run(folder: Path, how: str, at: int) -> int:
    command = [sys.executable, str(HERE / "crashing.py"), str(folder), how, str(at)]
    return subprocess.run(command, env={"PYTHONPATH": PATHS}, capture_output=True).returncode


def completed(folder: Path, undisturbed: str) -> None:
    crashing.finish(folder)
    found = auditor.audit(Registration(folder))
    assert {one.status for one in found} <= {"held", "not run", "cannot tell"}, found
    assert Registration(folder).seal.content["outcome"] == undisturbed
    keys = [records.body_key(record["body"]) for record in records.read_records(folder / "records")]
    assert len(keys) == len(set(keys)) == len(finished_study.lanes())


@pytest.mark.parametrize(
    ("how", "every"),
    [("kill", 7), ("full", 11), *(pytest.param(how, 1, marks=pytest.mark.soak) for how in ("kill", "full"))],
)
def test_a_kill_and_a_disk_that_is_full_are_survived_at_any_write(toy, undisturbed, tmp_path, how, every):
    """One process a write, until one is not reached any more."""
    for at in range(1, 1000, every):
        folder = shutil.copytree(toy, tmp_path / str(at))
        if (status := run(folder, how, at)) == 0:
            break
        assert (status == -9) == (how == "kill")
        assert how == "kill" or not list(folder.rglob(".*.????????")), "a half-written file was left"
        completed(folder, undisturbed)
    assert at > 40, "the study writes more often than that"


@pytest.mark.soak
def test_a_confirmation_that_is_killed_in_its_locked_tree_seals_the_same_outcome(unconfirmed, history):
    """As it was typed, twice, each time once it has records; then it is let finish."""
    for _ in range(2):
        studies.kill_when_it_grows(studies.typed("confirm", unconfirmed), unconfirmed / "records" / "shard-0.jsonl")
    assert studies.here("confirm", unconfirmed).returncode in (10, 11)
    undisturbed = Registration(history["confirm"] / "registrations" / "study").seal
    assert Registration(unconfirmed).seal.content["outcome"] == undisturbed.content["outcome"]
    assert studies.here("audit", unconfirmed).returncode == 0


def typing(study: Path, place: Path, name: str = "confirm", *options: str) -> list[object]:
    """The words of a command, in a new process but not in the locked tree."""
    known = place / "surroundings.json"
    known.write_text(json.dumps([studies.surroundings(), studies.SEEN]))
    code = "import json, sys, studies; sys.exit(studies.within(*json.load(open(sys.argv[1])), *sys.argv[2:]))"
    return [sys.executable, "-c", code, known, name, study, *options]


def in_a_small_world(mount: str, folder: Path, *command: object) -> subprocess.CompletedProcess:
    """Run `command` where `mount` was done first, in a namespace of its own that ends with it."""
    script = f'set -e; {mount}; exec "$@"'
    words = ["unshare", "--map-root-user", "--mount", "sh", "-c", script, "sh", *map(str, command)]
    paths = os.pathsep.join(map(str, (studies.ROOT, studies.ROOT / "tests")))
    return subprocess.run(words, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True)


@pytest.fixture(scope="module")
def namespaces(tmp_path_factory):
    place = tmp_path_factory.mktemp("mount")
    if not shutil.which("unshare") or in_a_small_world(f"mount -t tmpfs none {place}", place, "true").returncode:
        pytest.skip("this machine gives tests no mounts of their own")


@pytest.mark.soak
def test_a_disk_that_is_too_small_for_the_records_ends_in_one_line(namespaces, unconfirmed, tmp_path):
    """A real file system of a few pages: what fits is kept, and a larger disk continues it."""
    kept, small = tmp_path / "kept", tmp_path / "small"
    small.mkdir()
    size = sum(path.stat().st_size for path in unconfirmed.rglob("*") if path.is_file()) + 160 * 1024
    mount = f"mount -t tmpfs -o size={size} none {small}; cp -r {unconfirmed} {small}/study"
    keep = f'"$@"; s=$?; cp -r {small}/study {kept}; exit $s'
    done = in_a_small_world(mount, small, "sh", "-c", keep, "sh", *typing(small / "study", tmp_path))
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert "the disk is full" in done.stderr  # ENOSPC, whichever write met it
    assert (kept / "claim.json").exists()
    assert studies.here("confirm", kept).returncode in (10, 11)
    assert studies.here("audit", kept).returncode == 0


@pytest.mark.parametrize(
    "act", [("withdraw", "--reason", "a typo"), pytest.param(("confirm",), marks=pytest.mark.soak)], ids=" ".join
)
def test_a_folder_that_cannot_be_written_is_refused_in_one_line(namespaces, unconfirmed, tmp_path, act):
    with studies.unchanged(unconfirmed):
        mount = f"mount --bind {unconfirmed} {unconfirmed}; mount -o remount,ro,bind {unconfirmed}"
        done = in_a_small_world(mount, unconfirmed, *typing(unconfirmed, tmp_path, *act))
        assert done.returncode == 2, done.stdout + done.stderr
        assert "is on a read-only file system" in done.stderr
        assert "Traceback" not in done.stderr
