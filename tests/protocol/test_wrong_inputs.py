"""What people get wrong (wrong_inputs.toml): each mistake is answered in one line, and nothing is written.

A line of the table is what a person reads. It was read, and is changed on purpose or not at all.
"""

import contextlib
import importlib
import io
import json
import re
import shlex
import shutil
import tomllib
from pathlib import Path

import pytest
import studies
from looped import looped

from protocol.formats import suggestions
from protocol.lock import bundle

TABLE = tomllib.loads((Path(__file__).parent / "wrong_inputs.toml").read_text("utf-8"))
BASE, PROTOCOLS, COMMANDS = TABLE["base"], TABLE["protocol"], TABLE["command"]
PACKAGES = ("protocol.tasks", "protocol.models", "policies", "analysis.claims", "analysis.compare")  # run by __main__


def run(module: str, arguments: list[str]) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of a command, in this process."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            name = f"{module}.__main__" if module in PACKAGES else module
            status = importlib.import_module(name).main(arguments)
        except SystemExit as stopped:
            status = stopped.code
    out.flush()
    return status, out.buffer.getvalue().decode(), err.getvalue()


def files(folder: Path) -> dict[str, tuple[int, int] | None]:
    """Every file and folder below one; of a file its size and the time that it was written."""
    found = {}
    for path in sorted(folder.rglob("*")):
        plain = path.is_file() and not path.is_symlink()
        found[str(path)] = (path.stat().st_size, path.stat().st_mtime_ns) if plain else None
    return found


@pytest.fixture(scope="module")
def here(tmp_path_factory, registered) -> Path:
    """What the table names: {here}, and in it {written}, {locked}, {judged} and {other}, which no version
    that there is has locked.
    """
    here = tmp_path_factory.mktemp("here")
    for name in ("empty", "written", "binary-protocol", "folder-protocol/protocol.toml"):
        (here / name).mkdir(parents=True)
    (here / "text").write_text("text\n")
    (here / "binary").write_bytes(bytes(range(256)))
    (here / "loop").symlink_to("loop")
    (here / "binary-protocol" / "protocol.toml").write_bytes(b"\xff\xfe")
    (here / "written" / "protocol.toml").write_text(BASE)
    (here / "scores.csv").write_text("id,arm,score\n1,a,1\n1,b,0\n2,a,1\n2,b,0\n")
    (here / "semicolons.csv").write_text("id;arm;score\n1;a;1\n")
    (here / "nan.csv").write_text("id,arm,score\n1,a,nan\n1,b,0\n")
    (here / "claims.toml").write_text('format = 1\n[[tabel]]\nid = "x"\n')
    problems = ({"id": str(n), "context": "c", "question": "q?", "answer": "a"} for n in range(4))
    (here / "good.jsonl").write_text("".join(json.dumps(problem) + "\n" for problem in problems))
    for name, study in {
        "locked": registered,
        "other": registered,
        "judged": studies.ROOT / "registrations/quickstart",
    }.items():
        shutil.copytree(study, here / name)
    shutil.copyfile(studies.ROOT / "registrations" / bundle.SHARED, here / bundle.SHARED)
    (here / "other" / "lock.json").write_bytes(b'{"format":99}\n')
    for name, length in {"half": 3000, "null": 0}.items():  # written by a process that was killed
        (here / name).mkdir()
        (here / name / "verdict.json").write_bytes(
            (here / "judged" / "verdict.json").read_bytes()[:length] or b"null\n"
        )
    return here


def answered(here: Path, module: str, arguments: list[str]) -> tuple[int, str]:
    """Status and the one line, in the table's words; refuses a second line, output, and what was written."""
    before = files(here)
    status, out, err = run(module, arguments)
    assert out == "", err
    assert re.fullmatch(r"[^\n]+\n", err), err
    assert files(here) == before
    for name in ("written", "locked", "judged", "other"):
        err = err.replace(str(here / name), f"{{{name}}}")
    return status, err.strip().replace(str(here), "{here}").replace(str(studies.ROOT), "{repository}")


@pytest.mark.parametrize("row", PROTOCOLS, ids=[f"{row['says'][:60]}-{n}" for n, row in enumerate(PROTOCOLS)])
def test_a_mistake_in_a_protocol(here, tmp_path, row):
    assert BASE.count(row["this"]) == 1 or row["this"] == BASE
    folder = tmp_path / "study"
    folder.mkdir()
    text = BASE.replace(row["this"], row["as"].replace("{here}", str(here)))
    (folder / "protocol.toml").write_text(text)
    before = files(folder)
    status, says = answered(here, "protocol.register", [str(folder)])
    assert says.replace(str(folder), "{study}") == row["says"]
    assert status == 2
    assert files(folder) == before


@looped("row", COMMANDS, ids=[row["typed"] for row in COMMANDS])
def test_a_mistake_on_a_command_line(here, row, monkeypatch):
    monkeypatch.setenv("KV_PREREG_HOME", str(here / "home"))  # what was fetched on this machine changes no answer
    places = {name: here / name for name in ("written", "locked", "judged", "other")}
    module, *arguments = shlex.split(row["typed"])
    filled = [argument.format(here=here, **places) for argument in arguments]
    assert answered(here, module, filled) == (row["status"], row["says"])


def test_a_file_in_the_place_of_the_folder_of_downloads_is_named(here, monkeypatch):
    monkeypatch.setenv("KV_PREREG_HOME", str(here / "text"))
    says = "BadInput: KV_PREREG_HOME: {here}/text is a file; name a folder, or unset it"
    assert answered(here, "protocol.models", ["fetch", "smollm2-135m"]) == (2, says)


def test_the_table_has_a_hundred_mistakes_and_no_traces_of_the_code():
    rows = [*PROTOCOLS, *COMMANDS]
    assert len(rows) >= 100
    for row in rows:
        assert not re.search(r"Errno|Traceback|KeyError|Decimal\(|has the command a fault", row["says"]), row


@looped(
    ("name", "names", "meant"),
    [
        ("gpu", ["cpu", "cuda"], []),  # two letters of three are no likeness
        ("limit", ["name", "query", "lengths"], []),
        ("better", ["branch", "superior"], []),
        ("Snap-KV", ["h2o", "snapkv"], ["snapkv"]),  # case and hyphens do not count
        ("neddle-256", ["needle-256", "needle-768"], ["needle-256"]),
        ("needle-300", ["chain", "needle-256", "needle-768"], ["needle-256", "needle-768"]),
        ("pyramid", ["pyramidkv", "pyramid-1d", "h2o"], ["pyramidkv", "pyramid-1d"]),
        ("snapk", ["snapkv", "snapkv-rkv"], ["snapkv"]),
        ("", ["a"], []),
    ],
)
def test_names_that_may_be_meant(name, names, meant):
    assert suggestions.nearest_names(name, names) == meant
