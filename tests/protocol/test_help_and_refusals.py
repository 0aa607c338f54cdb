"""Every command says what it is, and refuses in one line: no traceback, nothing written."""

import contextlib
import importlib
import io
import json
import os
import re
import tempfile
from pathlib import Path

import pytest
import studies
from looped import looped

from protocol.lock import lock

PACKAGE = studies.ROOT / "protocol"
# Modules that can be run, by what follows "protocol.".
COMMANDS = sorted(
    path.relative_to(PACKAGE).with_suffix("").as_posix().removesuffix("/__main__").replace("/", ".")
    for path in (*PACKAGE.glob("*.py"), *PACKAGE.glob("*/__main__.py"))
    if '__name__ == "__main__"' in path.read_text("utf-8") and path != PACKAGE / "__main__.py"
)
# What a command needs beside the registration, which comes first; {} is a folder of the test's own.
FURTHER = {
    "amend": ["{}/new", "--reason", "a typo"],
    "anchor": ["--witness", "git"],
    "export": ["--format", "osf"],
    "withdraw": ["--reason", "a typo"],
}
NO_REGISTRATION = {"audit_changed", "calibrate", "completion", "init", "models", "tasks"}  # of other things
OF_A_REGISTRATION = [name for name in COMMANDS if name not in NO_REGISTRATION]


def run(name: str, *arguments: object):
    """Exit status, standard output and standard error of a command, run in this process."""
    out, err = io.StringIO(), io.StringIO()
    module = importlib.import_module(f"protocol.{name}.__main__" if name in ("models", "tasks") else f"protocol.{name}")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = module.main([*map(str, arguments)])
        except SystemExit as stopped:
            status = stopped.code
    return status, out.getvalue(), err.getvalue()


def refused(name, folder, own, *more) -> tuple[str, dict]:
    """What a command says of `folder`: one line, and with --json one object besides."""
    further = [argument.format(own) for argument in FURTHER.get(name, [])]
    status, out, err = run(name, folder, *further, *more)
    assert (status, out) == (2, ""), err
    assert re.fullmatch(r"\w+: .+\n", err)
    again, out, same = run(name, folder, *further, *more, "--json")
    assert (again, same) == (status, err)
    said = json.loads(out)
    assert said == {"refused": err.partition(":")[0], "why": said["why"], "exit_status": 2}
    assert said["why"] in err
    return err, said


def test_the_commands_are_found():
    assert {"audit", "confirm", "export", "models", "register", "status", "tasks"} <= set(COMMANDS)


@looped("name", COMMANDS)
def test_help_says_what_a_command_does_and_with_what_it_exits(name):
    status, out, _ = run(name, "--help")
    assert status == 0
    assert re.search(r"Exit status:\s+(that of|0)", out)
    assert re.match(rf"usage: kv-prereg {name.replace('_', '-')}\b", out)


@looped("name", OF_A_REGISTRATION)
@looped("wrong", ["nowhere", "empty", "file", "loop", "x" * 300], ids=["nowhere", "empty", "file", "loop", "too long"])
def test_what_is_no_registration_is_refused_in_one_line_and_left_alone(tmp_path, name, wrong):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("text")
    (tmp_path / "loop").symlink_to("loop")
    before = sorted(tmp_path.rglob("*"))
    refused(name, tmp_path / wrong, tmp_path)
    assert sorted(tmp_path.rglob("*")) == before


@looped("name", OF_A_REGISTRATION)
def test_a_protocol_that_cannot_be_read_is_refused_in_one_line_and_left_alone(tmp_path, name):
    folder = tmp_path / "study"
    folder.mkdir()
    (folder / "protocol.toml").write_bytes(b"\xff")
    with studies.unchanged(tmp_path):
        if name == "status":  # it reads no protocol
            assert run(name, folder)[0] == 0
        else:
            refused(name, folder, tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="takes rights away from itself, and back")
@pytest.mark.parametrize("name", [name for name in ("audit", "export", "status", "withdraw") if name in COMMANDS])
def test_a_folder_that_may_not_be_entered_is_refused_in_one_line(name):
    run(name, "--help")  # imports what the command needs
    with tempfile.TemporaryDirectory() as own:
        Path(own).chmod(0o755)
        folder = Path(own) / "study"
        folder.mkdir()
        (folder / lock.NAME).write_text("{}\n")
        folder.chmod(0)
        os.seteuid(65534)
        try:
            refused(name, folder, own)
        finally:
            os.seteuid(0)
        folder.chmod(0o755)
        assert [path.name for path in folder.iterdir()] == [lock.NAME]


@pytest.mark.parametrize(
    "arguments", [("audit",), ("status",), *(("export", "--format", form) for form in ("osf", "in-toto"))]
)
def test_json_of_a_finished_study_is_one_object(arguments):
    name, *further = arguments
    status, out, err = run(name, studies.ROOT / "registrations" / "quickstart", *further, "--json")
    assert (status, err) == (0, "")
    assert isinstance(json.loads(out), dict)
    assert out.count("\n") == 1


@looped("name", COMMANDS)
def test_an_unknown_option_is_refused_in_one_line(name):
    status, out, err = run(name, "--force")
    assert (status, out) == (2, "")
    typed = name.replace("_", "-")
    assert re.fullmatch(rf"kv-prereg {typed}: (missing: .+|unknown option '--force'; .+)\n", err)
