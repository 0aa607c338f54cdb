"""Small files that would stop a reader, and leftovers that accuse nobody."""

import gzip
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import studies
from attacking import findings

from protocol.evidence.external import git_history
from protocol.evidence.external.git_repository import Repository
from protocol.formats import packed_file
from protocol.formats.findings import CannotTell
from protocol.formats.refusals import BadInput, Tampered
from protocol.instruments.cost import measurement_file
from protocol.plan import grid, toml_reader
from protocol.recompute.changed_registrations import find_registrations
from protocol.sandbox import sandbox


def test_leftovers_of_editors_and_empty_folders_accuse_nobody(confirmed, tmp_path):
    folder = shutil.copytree(confirmed, tmp_path / "study")
    leftovers = ("shard-0.jsonl~", ".#shard-0.jsonl", "#shard-0.jsonl#", ".~lock.shard-0.jsonl#", ".shard-0.jsonl.swp")
    for name in leftovers:
        (folder / "records" / name).write_text("x")
    (folder / "records" / "empty").mkdir()
    found = findings(folder)
    assert [item for item, finding in found.items() if finding["status"] == "failed"] == []
    assert "NOT VOUCHED FOR" in found["files"]["detail"]
    (folder / "records" / "empty" / "extra").write_text("x")
    assert findings(folder)["files"]["status"] == "failed"


@pytest.mark.parametrize("name", ["anatomy", "cost", "records", "probe", "anchors", "figures"])
def test_a_folder_of_a_registration_is_no_registration(confirmed, tmp_path, name):
    folder = shutil.copytree(confirmed, tmp_path / "study")
    (folder / name).mkdir(exist_ok=True)
    if name in ("anatomy", "cost"):
        (folder / name / "verdict.json").write_text("{}")
    (folder / name / "any").write_text("x")
    assert find_registrations([folder / name / "any"]).registered == [folder]


def test_a_packed_shard_of_a_study_that_may_go_on_fails(probed, tmp_path):
    folder = shutil.copytree(probed, tmp_path / "study")
    shard = folder / "probe" / "shard-0.jsonl"
    shard.with_name("shard-0.jsonl.gz").write_bytes(gzip.compress(shard.read_bytes(), mtime=0))
    shard.unlink()
    found = findings(folder)["probe"]
    assert found["status"] == "failed"
    assert "is packed, but its study has not ended" in found["detail"]


def test_a_committed_packed_shard_is_as_large_as_it_states(monkeypatch):
    """It may be larger than a side file; a size that is not its own fails, whoever notices first."""
    monkeypatch.setattr(packed_file, "MAX_BYTES", 8)
    data = gzip.compress(b"line\n" * 100, mtime=0)
    assert git_history._unpack(data, "records/shard-0.jsonl.gz") == b"line\n" * 100
    with pytest.raises(Tampered, match=r"has more than 8 bytes|not readable"):
        git_history._unpack(data[:-4] + (8).to_bytes(4, "little"), "records/shard-0.jsonl.gz")


@pytest.mark.parametrize("place", [4, 8, 9])
def test_a_packed_file_has_the_header_that_python_writes(tmp_path, place):
    data = bytearray(gzip.compress(b"lines", mtime=0))
    path = tmp_path / "packed.gz"
    path.write_bytes(data)
    assert packed_file.read(path) == b"lines"
    data[place] ^= 64
    path.write_bytes(data)
    with pytest.raises(Tampered, match="its gzip header has optional fields"):
        packed_file.read(path)


def test_sixty_thousand_seeds_times_as_many_budgets_are_counted_and_not_made(tiny_model, tmp_path):
    folder = studies.write(
        tmp_path,
        tiny_model,
        {"seeds = [0]": f"seeds = {list(range(60_000))}", "budgets = [0.8]": f"budgets = {list(range(100, 60_100))}"},
    )
    design = toml_reader.parse_unchecked((folder / "protocol.toml").read_bytes(), "protocol.toml")
    with pytest.raises(BadInput, match="28,800,000,000 cells, over the limit of 100,000"):
        grid.cells(design, lambda design, arm: arm == "full")


def test_a_billion_measurements_are_counted_and_not_made():
    cost = {"prompt_tokens": list(range(2, 1002)), "lanes": list(range(1, 1001)), "repetitions": 1000}
    protocol = {"models": ["m"], "arms": {"a": {}}, "budgets": ["8"], "cost": cost | {"seed": 1}}
    with pytest.raises(BadInput, match="1,000,000,000 runs, over the limit of 1,000,000"):
        measurement_file.expected_lines({"protocol": {"content": protocol}, "grid": []})


@pytest.mark.skipif(sys.platform == "win32", reason="no pipes with names")
@pytest.mark.parametrize("name", ["config", "HEAD", "packed-refs", "info/grafts", "objects/info/alternates"])
def test_a_pipe_that_git_would_wait_for_is_named_at_once(tmp_path, name):
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    path = tmp_path / ".git" / name
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    os.mkfifo(path)
    with pytest.raises(CannotTell, match="is not a plain file, and git would wait for it; remove it"):
        Repository(tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="namespaces of Linux")
@pytest.mark.parametrize("mechanism", sandbox.MECHANISMS)
def test_what_an_auditor_started_ends_with_it(tmp_path, mechanism):
    """It is killed by the signal that no program can catch."""
    if not sandbox.is_usable(mechanism):
        pytest.skip(f"{mechanism} does not work here")
    program = (
        f"import sys; from pathlib import Path; from protocol.sandbox import sandbox; "
        f"sandbox.run([sys.executable, '-I', '-S', '-c', 'import time; time.sleep(77.125)'], Path({str(tmp_path)!r}), "
        f"mechanisms=[{mechanism!r}])"
    )
    auditor = subprocess.Popen([sys.executable, "-c", program], cwd=studies.ROOT)
    assert _wait_until(lambda: len(_running("77.125")) >= 1, 30)
    auditor.kill()
    auditor.wait()
    assert _wait_until(lambda: not _running("77.125"), 10)


def _running(word: str) -> list[str]:
    """Processes whose own command sleeps so long."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            arguments = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if f"import time; time.sleep({word})".encode() in arguments:
            lines.append(path.parent.name)
    return lines


def _wait_until(holds, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
