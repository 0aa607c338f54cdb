"""A folder is handed over that is not what it seems: whoever looks at it with any command is not harmed."""

import ast
import io
import json
import os
import random
import resource
import shutil
import socket
import struct
import subprocess
import sys
import tracemalloc
import unicodedata
import zipfile
import zlib
from pathlib import Path

import commands
import pytest
import random_damage
import rewriting
import studies
from attacking import findings
from commands import DRAWING, READING, REPLICATE
from sampled import sampled

from protocol.formats import canonical, escape, files, packed_file
from protocol.formats.findings import TooLarge
from protocol.formats.refusals import Tampered
from protocol.lock import bundle

# What a terminal obeys, by the standard and not by our table of it.
SENT = {
    chr(code)
    for code in range(0x110000)
    if unicodedata.category(chr(code)) in {"Cc", "Cf", "Zl", "Zp", "Cs"} and chr(code) != "\n"
}
ESCAPES = "\x1b[2J\x1b]0;owned\x07\r\x7f"  # a key of ours is ASCII
WORSE = ESCAPES + "\x9b31m\u202e\u2066\u2028\u200b\xad\U000e0041"
NAMES = {"crystal", "random", "streaming", "full", "needle-256", "association-256"}


@pytest.fixture
def folder(confirmed, tmp_path) -> Path:
    """A finished study, outside git, on a shelf of its own."""
    return shutil.copytree(confirmed, tmp_path / "registrations" / "study")


def clean(said: commands.Said, command: commands.Command) -> None:
    """What every command promises, whatever it reads."""
    assert said.status in command.statuses, said
    assert not SENT & set(said.both), said
    assert "Traceback" not in said.both
    assert said.err.count("\n") <= 1, said.err


def look(folder: Path) -> None:
    """Every command that reads looks at the folder; to replicate it is tried where its audit fails."""
    said = [(command, commands.run(command, folder)) for command in READING]
    if said[0][1].status == 3:
        said.append((REPLICATE, commands.run(REPLICATE, folder)))
    for command, one in said:
        clean(one, command)


# --- control characters


def test_what_reorders_hides_or_commands_is_shown_as_json_would_write_it():
    assert [one for one in SENT if escape.escape_control(f"a{one}b") in (f"a{one}b", "ab")] == []
    assert escape.escape_control("a\x1b[2J\u202e\U000e0041\ud800 é 中\n") == (
        "a\\u001b[2J\\u202e\\udb40\\udc41\\ud800 é 中\n"
    )


def test_json_that_was_shown_reads_as_before():
    value = {"a\x7f": f"{WORSE}é"}
    assert canonical.loads(canonical.dumps(value), "here") == value
    assert json.loads(escape.escape_control(json.dumps(value, ensure_ascii=False))) == value


def test_a_stream_that_cannot_print_a_letter_gets_its_escape():
    stream = io.TextIOWrapper(io.BytesIO(), "ascii")
    escape.print_escaped("é\x1b", stream)
    assert stream.buffer.getvalue() == b"\\xe9\\u001b\n"


def test_nothing_prints_but_by_the_one_function():
    """Where a terminal is written to, in all commands: `put` of the two modules, and nothing else."""
    elsewhere = []
    for package in ("protocol", "analysis", "figures"):
        for path in sorted((studies.ROOT / package).rglob("*.py")):
            if path.name in {"escape.py", "worker.py", "first_process.py"}:  # these two print to their parent
                continue
            calls = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
            for node in calls:
                last = getattr(node.func, "attr", getattr(node.func, "id", ""))
                called = ast.unparse(node.func) if last.startswith(("print", "write")) else ""
                raw = called == "print" or called.startswith(("sys.stdout.write", "sys.stderr.write"))
                if called == "sys.stdout.buffer.write":
                    raw = "escape_control(" not in ast.unparse(node)
                if raw:
                    elsewhere.append(f"{path.relative_to(studies.ROOT)}:{node.lineno}")
    assert elsewhere == []


def hostile(name: str, content: object) -> object:
    """Every text of a study with something in it that a terminal obeys; digests and states stay."""
    match content:
        case dict():
            return {hostile_key(key): hostile(name, one) for key, one in content.items()}
        case list():
            return [hostile(name, one) for one in content]
        case str() if content in NAMES or content.startswith(("path:", "needle-", "association-")):
            return content + ESCAPES
        case str() if " " in content:  # titles, questions, reasons, texts of the model
            return content + WORSE
    return content


def hostile_key(key: str) -> str:
    return key + ESCAPES if key in NAMES or key.startswith("path:") else key


def test_no_command_sends_what_a_hostile_study_says(folder):
    rewriting.forge(folder, hostile)
    (folder / "protocol.toml").write_text(f'title = "{ESCAPES}"')
    (folder / "anchors").mkdir()
    (folder / "anchors" / f"lock.{ESCAPES}").write_bytes(b"")
    (folder / f"{WORSE}.txt").write_bytes(b"")
    (folder / "records" / os.fsdecode(b"\xff\x1b[31m")).write_bytes(b"")
    there = folder.rename(folder.with_name(f"study{ESCAPES}\u202e"))
    escaped = 0
    for command in (*READING, *DRAWING):
        said = commands.run(command, there)
        clean(said, command)
        escaped += "\\u001b" in said.both or "\\x1b" in said.both
    assert escaped > len(READING) / 2  # most had something to show


def test_a_forger_who_changes_nothing_is_an_honest_study(folder):
    rewriting.forge(folder, lambda name, content: content)
    assert not [finding for finding in findings(folder).values() if finding["status"] == "failed"]


# --- links, pipes, devices


def replaced(path: Path, kind: str, outside: Path) -> None:
    """Something else in the place of what is there, which goes `outside`."""
    shutil.move(path, outside / path.name)
    match kind:
        case "link":
            path.symlink_to(outside / path.name)
        case "dangling":
            path.symlink_to(outside / "nowhere")
        case "pipe":
            os.mkfifo(path)
        case "socket":
            short = Path(f"/proc/self/fd/{os.open(path.parent, os.O_RDONLY)}") / path.name
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(str(short))
        case "folder":
            path.mkdir()


PLACES = [
    "lock.json",
    "ledger.jsonl",
    "sources.zip",
    "claim.json",
    "seal.json",
    "verdict.json",
    "protocol.toml",
    "records",
    "records/shard-0.jsonl",
    "records/trajectories",
    "probe",
    "probe/shard-0.jsonl",
]


@pytest.mark.parametrize(("place", "kind"), sampled(PLACES, ["link", "dangling", "pipe", "socket", "folder"], of=4))
def test_an_audit_names_what_is_no_plain_file_and_does_not_wait_for_it(folder, tmp_path, place, kind):
    if kind == "folder" and "." not in place:
        pytest.skip("that is what it is")
    (tmp_path / "outside").mkdir()
    replaced(folder / place, kind, tmp_path / "outside")
    failed = {item: one["detail"] for item, one in findings(folder).items() if one["status"] == "failed"}
    assert any(Path(place).name in detail for detail in failed.values()), failed


@pytest.mark.parametrize(
    ("place", "kind"),
    sampled(["ledger.jsonl", "records/shard-0.jsonl", "records/trajectories", "verdict.json"], ["link", "pipe"], of=2),
)
def test_no_command_follows_a_link_or_waits_for_a_pipe(folder, tmp_path, place, kind):
    (tmp_path / "outside").mkdir()
    replaced(folder / place, kind, tmp_path / "outside")
    look(folder)
    for module in ("analysis.judge", "analysis.diagnostics", "figures.table", "figures.forest"):
        said = commands.run(commands.Command(module, ("{}",), (2,)), folder)
        assert (said.status, "is not a plain file" in said.err) == (2, True), said


@pytest.mark.parametrize("place", ["figures", "figures/forest.svg", "report.html"])
def test_nothing_is_drawn_through_a_link(folder, tmp_path, place):
    (tmp_path / "outside").mkdir()
    replaced(folder / place, "link", tmp_path / "outside")
    with studies.unchanged(tmp_path / "outside"):
        for command in (*DRAWING, commands.Command("figures.forest", ("{}",), (2,))):
            assert commands.run(command, folder).status == 2


def test_a_proof_is_not_written_through_a_link(folder, tmp_path):
    (tmp_path / "outside").mkdir()
    (folder / "anchors").symlink_to(tmp_path / "outside")
    asked = ("{}", "lock", "--witness", "git", "--remote", "file:///nowhere")
    assert commands.run(commands.Command("protocol.anchor", asked, (3,)), folder).status == 3
    assert list((tmp_path / "outside").iterdir()) == []


def test_the_folder_itself_may_be_reached_by_a_link(folder, tmp_path):
    (tmp_path / "short").symlink_to(folder)
    assert commands.run(commands.Command("analysis.judge", ("{}",), (0,)), tmp_path / "short").status == 0
    assert not [finding for finding in findings(tmp_path / "short").values() if finding["status"] == "failed"]


@pytest.mark.parametrize("name", ["/dev/zero", "/dev/stdin"])
def test_a_device_is_not_opened(name):
    with pytest.raises(Tampered, match="is not a plain file"):
        files.read(Path(name))


# --- bombs


def sparse(path: Path, size: int) -> None:
    with path.open("wb") as file:
        file.truncate(size)


def test_a_file_without_end_is_refused_by_its_size(tmp_path):
    """One that may be as long as it likes, by what this machine can hold: a larger one can tell."""
    sparse(tmp_path / "huge", 1 << 40)
    with pytest.raises(Tampered, match="has 1099511627776 bytes"):
        files.read(tmp_path / "huge", files.MAX_DOCUMENT_BYTES)
    with pytest.raises(TooLarge, match="has 1099511627776 bytes, but this machine can read only"):
        files.read(tmp_path / "huge")


def test_a_compressed_file_is_inflated_up_to_its_bounds(tmp_path):
    path = tmp_path / "side.json.gz"
    packing = zlib.compressobj(9, wbits=31)
    path.write_bytes(packing.compress(bytes(1000)) + packing.flush())
    assert packed_file.read(path, 1000) == bytes(1000)
    with pytest.raises(Tampered, match="has more than 999 bytes"):
        packed_file.read(path, 999)
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(Tampered, match="are truncated"):
        packed_file.read(path)
    path.write_bytes(b"plain")
    with pytest.raises(Tampered, match="not readable"):
        packed_file.read(path)


def zipped(path: Path, members: dict[str, bytes], how: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", how) as made:
        for name, data in members.items():
            made.writestr(name, data)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: zipped(path, {"a": bytes(1 << 26)}, zipfile.ZIP_DEFLATED), "declare more bytes than any bundle"),
        (
            lambda path: zipped(path, {"a": bytes(9)}, zipfile.ZIP_LZMA),
            "in a way that kv-prereg never uses",
        ),
        (lambda path: zipped(path, {str(n): b"" for n in range(5000)}), "lists more than 4096 members"),
        (lambda path: zipped(path, {"../a": b""}), "points outside"),
        (lambda path: path.write_bytes(b"PK\5\6"), "does not end like a bundle of kv-prereg"),
        (lambda path: sparse(path, 1 << 33), "bytes; no file of this kind"),
    ],
    ids=["deflated", "lzma", "members", "outside", "cut", "sparse"],
)
def test_a_bundle_is_refused_before_it_is_unpacked(tmp_path, make, words):
    make(tmp_path / "sources.zip")
    with pytest.raises(Tampered, match=words):
        bundle.read(tmp_path / "sources.zip", {})


def test_a_bundle_that_declares_more_than_it_has_is_refused(tmp_path):
    """Members that lie over one another: each reads the same bytes, and together they have no end."""
    path = tmp_path / "sources.zip"
    zipped(path, {"a": bytes(1 << 16), "b": b""})
    data = bytearray(path.read_bytes())
    second = data.index(b"PK\1\2", data.index(b"PK\1\2") + 1)
    data[second + 20 : second + 28] = struct.pack("<2L", 1 << 31, 1 << 31)  # compressed and declared size
    path.write_bytes(data)
    with pytest.raises(Tampered, match="declare more bytes than any bundle"):
        bundle.read(path, {})


@pytest.mark.parametrize(("declared", "words"), [(9, "not readable"), (1 << 24, "fewer bytes than it declares")])
def test_a_deflated_member_inflates_no_further_than_it_declares(tmp_path, declared, words):
    """A quarter of a gigabyte of zeros that says it is short, and a short member that says it is long."""
    path = tmp_path / "sources.zip"
    zipped(path, {"a": bytes(1 << 28 if declared == 9 else 9)}, zipfile.ZIP_DEFLATED)
    data = bytearray(path.read_bytes())
    start = data.index(b"PK\1\2")
    data[start + 24 : start + 28] = struct.pack("<L", declared)
    path.write_bytes(data)
    tracemalloc.start()
    with pytest.raises(Tampered, match=words):
        bundle.read(path, {})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 26


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
from protocol import audit
status = audit.main(sys.argv[1:])
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))  # not that of the parent
print("peak", int(peak.split()[1]) // 1024)
sys.exit(status)
"""
BOMBS = {
    "nested lock": ("lock.json", b"[" * 4_000_000),
    "digits": ("lock.json", b'{"a":' + b"9" * 4_000_000 + b"}\n"),
    "many": ("lock.json", b"[" + b"0," * 2_000_000 + b"0]\n"),
    "ledger": ("ledger.jsonl", b"{}\n" * 1_300_000),
    "nested line": ("records/shard-0.jsonl", b'{"a":' * 2_000_000),
    "toml": ("protocol.toml", b"a = " + b"[" * 4_000_000),
}


@pytest.mark.parametrize(
    "bomb", [name if name == "many" else pytest.param(name, marks=pytest.mark.soak) for name in BOMBS]
)
def test_a_bomb_is_refused_in_seconds_and_half_a_gigabyte(folder, bomb):
    name, data = BOMBS[bomb]
    (folder / name).write_bytes(data)
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, folder], cwd=studies.ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr
    assert int(done.stdout.rpartition("peak ")[2]) < 500  # MB


def test_bombs_of_every_kind_take_no_time(folder):
    sparse(folder / "records" / "shard-0.jsonl", 1 << 40)
    sparse(folder / "sources.zip", 1 << 40)
    side = next((folder / "records" / "trajectories").iterdir())
    packing = zlib.compressobj(9, wbits=31)
    side.write_bytes(b"".join(packing.compress(bytes(1 << 24)) for _ in range(20)) + packing.flush())
    used = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    look(folder)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_utime - used < 20  # of all commands together


# --- absurdities


PARTS = ["lock.json", "claim.json", "seal.json", "verdict.json", "ledger.jsonl", "records", "probe", "all"]
RARE = {"records": 0.02, "probe": 0.02, "ledger.jsonl": 0.3}  # of these there are many


def absurd(folder: Path, seed: int) -> None:
    """Up to a hundred absurd values in one part of the folder or in all, digests mended; or raw garbage."""
    draw = random.Random(seed)
    part = [*PARTS, "raw"][seed % 9]
    times = draw.choice([1, 1, 2, 10, 100])
    if part == "raw":
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        for path in draw.sample(paths, min(len(paths), draw.choice([1, 5, 30]))):
            path.write_bytes(random_damage.garbage(draw, path.read_bytes()))
        return

    def change(name: str, content: object) -> object:
        asked = part in (name, "all") and draw.random() < RARE.get(name, 1)
        return random_damage.absurd(draw, content, times) if asked else content

    rewriting.forge(folder, change)


@pytest.mark.parametrize("seed", sampled(range(3, 303), of=150))
def test_a_hundred_absurdities_end_in_one_line_for_each_command(folder, seed):
    absurd(folder, seed)
    look(folder)
    for command in DRAWING if seed % 9 == 3 else ():
        clean(commands.run(command, folder), command)


def test_a_judgement_without_a_word_is_named(folder):
    def speechless(name: str, content: dict) -> dict:
        if name == "verdict.json":
            del content["judged"]["verdict"]
        return content

    rewriting.forge(folder, speechless)
    assert findings(folder)["verdict"]["status"] == "failed"
    look(folder)
