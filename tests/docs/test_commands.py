"""docs/commands.md has every command, its options and its exit statuses."""

import contextlib
import importlib
import io
import re

import pytest
from markdown_pages import commands
from studies import ROOT

PAGE = (ROOT / "docs" / "commands.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line[:1] == "|"
]
# Run by commands, not by people.
WORKERS = {"protocol.grading.worker", "protocol.harness.worker", "protocol.locked.first_process"}
OURS = sorted(name for name in commands() - WORKERS if not name.startswith("benchmarks."))


def module(name: str):
    package = (ROOT.joinpath(*name.split(".")) / "__main__.py").exists()
    return importlib.import_module(f"{name}.__main__" if package else name)


def options(name: str) -> set[str]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        module(name).main(["--help"])
    return set(re.findall(r"--[\w-]+", out.getvalue()))


def test_every_command_is_there_and_no_other():
    named = {
        found
        for cell, *_ in ROWS
        for found in re.findall(r"`((?:protocol|analysis|figures|splits)\.[\w.]+|policies\b)", cell)
    }
    assert named == set(OURS)


@pytest.mark.parametrize("row", [row for row in ROWS if row[0].startswith("`--")], ids=lambda row: row[0])
def test_an_option_is_one_of_the_commands_that_it_is_said_to_be(row):
    for command in row[1].split(", "):
        for option in re.findall(r"--[\w-]+", row[0]):
            assert option in options(f"protocol.{command}"), command


def test_every_exit_status_is_explained():
    explained = {int(row[0]) for row in ROWS if row[0].isdigit()}
    for name in OURS:
        said = re.search(r"Exit status:.*", module(name).__doc__ or "", re.DOTALL)
        told = re.findall(r"(?<!\w)(\d+) (?=[a-z]|CONF|REF|INC|DEV)", said[0]) if said else []
        assert {int(status) for status in told} <= explained, name


def test_a_status_names_commands_that_exist():
    for row in ROWS:
        if row[0].isdigit():
            for command in re.findall(r"`(\w+)`", row[2]):
                assert f"protocol.{command}" in OURS
