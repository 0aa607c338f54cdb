"""kv-prereg: one command over all of them, which does what `python -m` does."""

import hashlib
import os
import re
import shlex
import subprocess
import sys
import tomllib
from base64 import urlsafe_b64encode
from pathlib import Path

import pytest
import studies

from protocol import __main__ as one
from protocol import completion
from protocol.command import menu
from protocol.command.menu import MENU, STATUSES, Entry
from protocol.formats import escape as of_evidence
from protocol.formats import extras
from protocol.lock import package_shadowing
from protocol.lock.closure import PACKAGES

QUICKSTART = studies.ROOT / "registrations" / "quickstart"
STUDY = ["init", "rehearse", "register", "probe", "confirm", "audit", "report", "replicate"]


def typed(capsys, *words: str):
    """Exit status, standard output and standard error of `kv-prereg WORDS`."""
    try:
        status = one.main(words)
    except SystemExit as ended:
        status = ended.code
    return status, *capsys.readouterr()


@pytest.mark.parametrize("words", [(), ("help",), ("--help",), ("-h",), ("help", "--help")])
def test_help_begins_with_the_usual_order_of_work_and_names_every_command_and_status(capsys, words):
    status, out, err = typed(capsys, *words)
    assert (status, err) == (0, "")
    listed = re.findall(r"^  ([a-z-]+) ", out, re.MULTILINE)
    assert listed[: len(STUDY)] == STUDY
    assert sorted(listed) == sorted(MENU)
    assert {*re.findall(r"^  (\d+) ", out, re.MULTILINE)} == {str(each.number) for each in STATUSES}
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize("words", [("help", "status"), ("status", "--help"), ("--help", "status")])
def test_help_of_a_command_is_its_own(capsys, monkeypatch, words):
    monkeypatch.delitem(sys.modules, "protocol.status", raising=False)
    status, out, _ = typed(capsys, *words)
    assert status == 0
    assert out.startswith("usage: kv-prereg status [-h] [--json] [folder]")
    assert "Exit status:" in out


@pytest.mark.parametrize(
    ("mistyped", "meant"),
    [
        ("confrim", "confirm"),
        ("regsiter", "register"),
        ("stauts", "status"),
        ("policy", "policies"),
        ("task", "tasks"),
        ("registration", "register"),
        ("by_level", "by-level"),
        ("replication", "replicate"),
        ("STATUS", "status"),
    ],
)
def test_a_near_miss_is_corrected(capsys, mistyped, meant):
    said = f"BadInput: unknown command {mistyped!r}; did you mean {meant!r}?\n"
    assert typed(capsys, mistyped) == (2, "", said)
    assert typed(capsys, "help", mistyped) == (2, "", said)


@pytest.mark.parametrize("other", ["run", "validate", "compute", "import", "start", "delete", "x", "", "eval"])
def test_what_is_near_to_nothing_gets_the_list(capsys, other):
    status, out, err = typed(capsys, other)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert f"kv-prereg help lists all: {', '.join(STUDY)}, ..." in err


def test_an_option_before_the_command_is_refused(capsys):
    status, _, err = typed(capsys, "--json", "status")
    assert (status, err.count("\n")) == (2, 1)
    assert "unknown option --json: write options after a command" in err


def test_the_version_is_that_of_package_sources_and_python(capsys):
    status, out, err = typed(capsys, "--version")
    assert (status, err) == (0, "")
    version = tomllib.loads((studies.ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert re.match(rf"kv-prereg(, not installed| {re.escape(version)}), ", out)
    assert out.endswith(f"Python {sys.version.split()[0]}, in {studies.ROOT}\n")
    if (studies.ROOT / ".git").exists():
        head = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=studies.ROOT, capture_output=True, text=True, check=True
        )
        assert f"commit {head.stdout[:12]}, " in out


def test_it_does_what_python_m_does(capsys, monkeypatch):
    from protocol import status as alone

    expected = alone.main([str(QUICKSTART), "--json"]), *capsys.readouterr()
    monkeypatch.delitem(sys.modules, "protocol.status")
    assert typed(capsys, "status", str(QUICKSTART), "--json") == expected


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Makes a command of the given code, which kv-prereg calls `made`."""

    def make(code: str) -> None:
        (tmp_path / "made_command.py").write_text(code)

    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(one, "MENU", {"made": Entry("made_command", "", "")})
    return make


def test_a_command_is_the_main_module_and_sees_its_own_words_alone(capsys, command):
    """So that the locked tree is entered with them, and processes that it spawns find it."""
    command(
        "import sys\n"
        "print(__name__, sys.modules['__main__'].__spec__.name, sys.argv[1:])\n"
        "sys.exit(11 if __name__ == '__main__' else 0)\n"
    )
    before = sys.argv
    assert typed(capsys, "made", "a", "--b") == (11, "__main__ made_command ['a', '--b']\n", "")
    assert sys.argv is before


@pytest.mark.parametrize(
    ("module", "says"),
    [
        ("torch", "run, in the clone of kv-prereg: pip install '.[run]'"),
        (
            "rich.progress",
            "needs rich, which is not installed here; run, in the clone of kv-prereg: pip install '.[run]'",
        ),
        ("pyrage", "pip install '.[seal]'"),
        ("pandas", "pip install ."),
        ("someone", "no extra of kv-prereg installs it; run: pip install someone"),
        ("analysis.nowhere", "is missing from this installation; correct the name where it is listed, or install"),
    ],
)
def test_a_package_that_is_missing_is_named_with_what_brings_it(capsys, command, module, says):
    command(f"raise ModuleNotFoundError('No module', name={module!r})\n")
    status, out, err = typed(capsys, "made")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("BadInput: kv-prereg made: ")
    assert says in err


def test_every_extra_names_what_it_brings():
    """By the declaration: a distribution is imported by its name, with lines for dashes."""
    project = tomllib.loads((studies.ROOT / "pyproject.toml").read_text())["project"]
    declared = {"": project["dependencies"], **project["optional-dependencies"]}
    for extra, brought in extras.EXTRAS.items():
        names = {re.split(r"[<>=]", each)[0].replace("-", "_") for each in declared[extra]}
        assert names - {"pytest"} <= {*brought}, extra


def test_interrupted_by_hand_it_says_so(capsys, command):
    command("raise KeyboardInterrupt\n")
    status, out, err = typed(capsys, "made")
    assert (status, out, err.count("\n")) == (130, "", 1)
    assert err.startswith("interrupted")


def test_a_console_script_does_not_search_its_own_folder(tmp_path, monkeypatch):
    """No lock covers it, so that register, probe and confirm would refuse it."""
    (tmp_path / "kv-prereg").touch()
    other = str(tmp_path / "other")
    for link, first, left in (
        (tmp_path / "kv-prereg", str(tmp_path), [other]),
        (tmp_path / "kv-prereg", other, [other, other]),
    ):
        monkeypatch.setattr(sys, "argv", [str(link)])
        monkeypatch.setattr(sys, "path", [first, other])
        one._drop_script_folder()
        assert sys.path == left


def tree(root: Path) -> Path:
    for package in PACKAGES:
        (root / package).mkdir(parents=True)
        (root / package / "__init__.py").write_text("ours = True\n")
    return root


def test_our_own_packages_are_not_shadowed(tmp_path):
    assert package_shadowing.find_shadowing() is None
    own = tree(tmp_path / "own")
    (tmp_path / "here" / "analysis").mkdir(parents=True)  # a folder of results is no package
    assert package_shadowing.find_shadowing(own, [str(tmp_path / "here"), str(own)]) is None


@pytest.mark.parametrize("file", ["analysis/__init__.py", "splits.py"])
def test_a_package_or_script_that_python_finds_first_is_named(tmp_path, file):
    own, theirs = tree(tmp_path / "own"), tmp_path / "here" / file
    theirs.parent.mkdir(parents=True)
    theirs.write_text("raise SystemExit('was run')\n")
    line = package_shadowing.find_shadowing(own, [str(tmp_path / "here"), str(own)])
    assert line.startswith(f"{file[:-3].partition('/')[0]}: Python finds {theirs} before kv-prereg's own")
    assert "rename it" in line


def test_a_package_that_another_distribution_wrote_over_is_named(tmp_path):
    own = tree(tmp_path / "site-packages")
    (own / "kv_prereg-1.dist-info").mkdir()
    digest = urlsafe_b64encode(hashlib.sha256(b"ours = True\n").digest()).rstrip(b"=").decode()
    listed = [f"{package}/__init__.py,sha256={digest},12\n" for package in PACKAGES]
    (own / "kv_prereg-1.dist-info" / "RECORD").write_text("".join(listed))
    assert package_shadowing.find_shadowing(own, [str(own)]) is None
    (own / "figures" / "__init__.py").write_text("theirs = True\n")
    line = package_shadowing.find_shadowing(own, [str(own)])
    assert line.startswith(f"figures: {own / 'figures' / '__init__.py'} is not the file")
    assert "in a separate environment" in line


def test_as_a_module_it_refuses_a_script_of_one_of_its_names_where_it_is_typed(tmp_path):
    (tmp_path / "analysis.py").write_text("print('was run')\n")
    done = subprocess.run(
        [sys.executable, "-m", "protocol.register", "study"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(studies.ROOT)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert f"BadInput: analysis: Python finds {tmp_path / 'analysis.py'}" in done.stderr


def put_bytes(text: str, stream) -> None:
    of_evidence.print_bytes(text)


@pytest.mark.parametrize("put", [of_evidence.print_escaped, put_bytes])
def test_a_reader_that_has_gone_is_no_error(monkeypatch, put):
    ours, theirs = os.pipe()
    os.close(ours)
    with open(theirs, "w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        put("line\n" * 100_000, stream)
        put("more\n", stream)  # and closing it, as Python does in the end, is none either


@pytest.mark.parametrize(
    "typed", ["", "tasks list", "tasks list --help", pytest.param(f"table {QUICKSTART}", marks=pytest.mark.soak)]
)
def test_a_full_output_is_one_line_and_a_closed_one_changes_no_status(typed):
    program = f"{shlex.quote(sys.executable)} -m protocol {typed}"
    run = f"{program} > /dev/full; echo $? >&2; {program} >&-; echo $? >&2"
    done = subprocess.run(["bash", "-c", run], cwd=studies.ROOT, env=studies.plain(), capture_output=True, text=True)
    lines = [line for line in done.stderr.splitlines() if not line.startswith("[")]  # without progress
    full = "OSError: standard output: No space left on device; the output is incomplete"
    assert lines == [full, "2", "standard output is closed: the result is not printed", "0"]


def test_warnings_of_libraries_reach_no_user(tmp_path):
    warned = "import warnings; warnings.warn('soon', FutureWarning)"
    code = f"from protocol.__main__ import main; import sys; sys.argv = ['x', '--version']; main(); {warned}"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=studies.ROOT, env=studies.plain(), capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("chosen", "policy"), [(None, "PASSIVE"), ("ACTIVE", "ACTIVE")])
def test_idle_threads_sleep_unless_the_user_says_otherwise(chosen, policy, capsys, monkeypatch):
    monkeypatch.setenv("OMP_WAIT_POLICY", chosen or "")
    if chosen is None:
        monkeypatch.delenv("OMP_WAIT_POLICY")
    typed(capsys, "--version")
    assert os.environ["OMP_WAIT_POLICY"] == policy


def test_a_pipe_that_is_read_to_its_first_line_leaves_no_trace():
    """To the end of the interpreter: a listing by its module, help by argparse, help of the whole."""
    lines = [f"protocol.export {QUICKSTART} --format osf", "protocol split --help", "protocol"]
    run = "; ".join(f"{shlex.quote(sys.executable)} -m {line} | true; echo ${{PIPESTATUS[0]}}" for line in lines)
    done = subprocess.run(
        ["bash", "-c", f"unset PYTHONUNBUFFERED; {run}"],
        cwd=studies.ROOT,
        env=studies.plain(),
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.stderr) == ("0\n" * len(lines), "")


def test_the_parser_of_a_command_is_named_as_people_type_it():
    for name, entry in menu.MENU.items():
        if entry.module.startswith("protocol.") and (parser := completion.load_parser(entry.module)) is not None:
            assert parser.prog.split()[:2] == ["kv-prereg", name], entry.module
