"""docs/commands.md has every command of the menu, its options and what they end with."""

import contextlib
import importlib
import io
import json
import re
import subprocess
import sys

import pytest
from looped import looped
from markdown_pages import commands
from studies import ROOT

from protocol import command, completion
from protocol.command.menu import MENU, STATUSES
from protocol.formats import refusals

PAGE = (ROOT / "docs" / "commands.md").read_text()
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line[:1] == "|"]
# Run by commands, not by people; and what whoever keeps the repository runs.
WORKERS = {
    *("protocol.grading.worker", "protocol.harness.worker"),
    *("protocol.sandbox.first_process", "protocol.sandbox.program_server"),
    "protocol.evidence.pack_study",
    *("protocol.run.executors.worker", "protocol.run.executors.ray_launcher"),
}
OURS = sorted(name for name in commands() - WORKERS if not name.startswith("benchmarks."))
THERE = [name for name, entry in MENU.items() if entry.module in OURS]
OWN_WORDS = {"lm-eval"}  # its parser is lm-eval's
OF_OTHERS = {"tasks": {"--identity"}, "pool": {"--fresh"}}  # options of another command, of which a help speaks


def module(name: str):
    package = (ROOT.joinpath(*name.split(".")) / "__main__.py").exists()
    return importlib.import_module(f"{name}.__main__" if package else name)


def helped(name: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        module(MENU[name].module).main(["--help"])
    return out.getvalue()


# The program's own way to a help, of every command in one process.
QUICK = """
import contextlib, importlib, io, json, sys
from protocol.command import help_imports
help_imports.replace_slow_libraries()
texts = {}
for name, module in json.loads(sys.argv[1]).items():
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
        importlib.import_module(module).main(["--help"])
    texts[name] = out.getvalue()
libraries = [name for name, module in sys.modules.items() if "site-packages" in (getattr(module, "__file__", "") or "")]
loaded = sorted({name.partition(".")[0] for name in libraries if not name.startswith("_")})  # not pip's own hooks
print(json.dumps([texts, loaded]))
"""


def test_every_help_is_printed_without_the_libraries_that_take_seconds():
    names = [name for name in THERE if name not in OWN_WORDS]
    modules = json.dumps({name: module(MENU[name].module).__name__ for name in names})
    done = subprocess.run([sys.executable, "-c", QUICK, modules], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [{name: helped(name) for name in names}, ["markupsafe"]]  # small


def test_a_completion_is_the_same_without_them():
    quick = "from protocol.command import help_imports; help_imports.replace_slow_libraries()"
    printed = "from protocol import completion; print(completion.format_script('bash'), end='')"
    done = subprocess.run([sys.executable, "-c", f"{quick}; {printed}"], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, completion.format_script("bash")), done.stderr


def options(name: str) -> set[str]:
    return set(re.findall(r"--[a-z][\w-]+", helped(name)))


def test_every_command_has_a_name_and_is_on_the_page_and_no_other():
    assert {entry.module for entry in MENU.values()} == {*OURS} - {"protocol"}
    modules = {cell for _, cell, *_ in ROWS for cell in re.findall(r"^`([\w.]+)`$", cell)}
    alone = {*re.findall(r"`kv-prereg (\w+) \w+` \(`[\w.]+`\)", PAGE)}
    assert {MENU[name].module for name in alone} | modules == {entry.module for entry in MENU.values()}


@looped("row", [row for row in ROWS if re.match(r"`\w+\.\w|`policies`", row[1])], ids=str)
def test_a_row_names_a_command_by_its_menu(row):
    typed = re.findall(r"`([\w-]+)", row[0])
    assert {MENU[name].module for name in typed} == {row[1].strip("`")}


@looped("name", [name for name in THERE if name not in OWN_WORDS])
def test_help_says_the_name_that_is_typed(name):
    assert re.match(rf"usage: kv-prereg {name}\b", helped(name))


@looped("row", [row for row in ROWS if row[0].startswith("`--")], ids=lambda row: row[0])
def test_an_option_is_one_of_the_commands_that_it_is_said_to_be(row):
    for name in row[1].split(", "):
        for option in re.findall(r"--[\w-]+", row[0]):
            assert option in options(name), name


def test_every_exit_status_of_a_command_is_explained_as_of_it():
    """What a command's help says it ends with stands in the table, of that command or of all."""
    for name in THERE:
        said = re.search(r"Exit status:.*", module(MENU[name].module).__doc__ or "", re.DOTALL)
        told = re.findall(r"(?<!\w)(\d+) (?=[a-z]|CONF|REF|INC|DEV)", said[0]) if said else []
        explained = {one.number for one in STATUSES if not one.commands or name in one.commands}
        assert {int(status) for status in told} <= explained, name


def test_a_status_is_one_that_the_code_ends_with():
    told = {one.number for one in STATUSES}
    refused = {each.exit_status for each in vars(refusals).values() if hasattr(each, "exit_status")}
    assert refused | {*command.EXIT_STATUS.values()} <= told
    for one in STATUSES:
        assert {*one.commands} <= MENU.keys()
        for name in one.commands:
            said = module(MENU[name].module).__doc__ or ""
            assert re.search(rf"\b{one.number}\b|that of the child", said), (one.number, name)


@pytest.fixture(scope="module")
def scripts():
    return {shell: completion.format_script(shell) for shell in completion.SHELLS}


@looped("name", [name for name in THERE if name not in OWN_WORDS])
def test_shells_complete_the_options_that_help_says(name, scripts):
    named = f"_shtab_kv_prereg_{name.replace('-', '_')}"
    completed = " ".join(re.findall(rf"^{named}\w*_option_strings=\((.*)\)$", scripts["bash"], re.MULTILINE)).split()
    assert options(name) <= {*completed, *OF_OTHERS.get(name, ())}
    assert f" -a {name} " in scripts["fish"]


TYPED = {
    "conf": "confirm",
    "confirm --require": "--require-anchor",
    "policies snapk": "snapkv snapkv_with_window snapkv-rkv",
    "calibrate chain-llama text --task chain-1": "chain-16 chain-12-16",
    "export x --format in": "in-toto",
    "confirm registrations/quick": "registrations/quickstart",
    "confirm quick": "registrations/quickstart",
}


def test_bash_completes(scripts):
    """One process: a case a line, typed word by word."""
    calls = [
        f"COMP_WORDS=(kv-prereg {typed}); COMP_CWORD=$((${{#COMP_WORDS[@]}}-1)); _shtab_kv_prereg" for typed in TYPED
    ]
    lines = [f'{call} 2>/dev/null; echo "${{COMPREPLY[*]}}"' for call in calls]
    script = "\n".join([scripts["bash"], *lines])
    done = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert dict(zip(TYPED, done.stdout.splitlines(), strict=True)) == TYPED
