"""docs/notebook/first_study.ipynb runs from top to bottom, and shows what its words say."""

import ast
import json
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import studies
from studies import ROOT

from protocol.command.menu import MENU
from protocol.plan import toml_reader

BOOK = json.loads((ROOT / "docs" / "notebook" / "first_study.ipynb").read_text())
CODE = ["".join(cell["source"]) for cell in BOOK["cells"] if cell["cell_type"] == "code"]
COMMANDS = [cell for cell in CODE if cell.startswith("!")]
PIPED = " 2>&1 | cat"


def test_it_has_at_most_twelve_cells_of_code_and_keeps_no_output():
    assert BOOK["nbformat"] == 4
    assert len(CODE) <= 12
    assert not any(cell["outputs"] for cell in BOOK["cells"] if cell["cell_type"] == "code")
    names = [cell["id"] for cell in BOOK["cells"]]
    assert len(names) == len(set(names))


def test_the_protocol_that_it_writes_is_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(CODE[0], "cell", "exec"), {})
    written = tmp_path / "registrations/first/protocol.toml"
    assert toml_reader.parse(written.read_bytes(), "protocol.toml").models == ("chain-llama",)


def test_its_commands_are_those_of_this_project():
    typed = [shlex.split(cell.removeprefix("!").removesuffix(PIPED))[:2] for cell in COMMANDS]
    assert [program for program, _ in typed] == 4 * ["kv-prereg"]
    assert {name for _, name in typed} <= MENU.keys()


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """What each cell printed, or the value of its last line, by the cell."""
    here, shown = tmp_path_factory.mktemp("notebook"), {}
    space = {"__name__": "__main__"}
    display = SimpleNamespace(Image=lambda path: Path(path).read_bytes())
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        patch.setitem(sys.modules, "IPython", SimpleNamespace(display=display, version_info=(9, 0)))
        patch.setitem(sys.modules, "IPython.display", display)
        for cell in CODE:
            shown[cell] = typed(cell) if cell.startswith("!") else value(cell, space)
    return shown


def typed(cell: str) -> tuple[int, str]:
    _, name, *arguments = shlex.split(cell.removeprefix("!").removesuffix(PIPED))
    done = studies.here(MENU[name].module.removeprefix("protocol."), *arguments, drawn=True)
    return done.returncode, done.stdout + done.stderr


def value(cell: str, space: dict) -> object:
    """As a notebook does it: the last expression is shown."""
    *before, last = ast.parse(cell).body
    exec(compile(ast.Module(before, []), "cell", "exec"), space)
    if isinstance(last, ast.Expr):
        return eval(compile(ast.Expression(last.value), "cell", "eval"), space)
    exec(compile(ast.Module([last], []), "cell", "exec"), space)
    return None


def of(ran: dict, part: str) -> object:
    (found,) = [shown for cell, shown in ran.items() if part in cell]
    return found


@pytest.mark.soak
def test_it_ends_in_a_judged_study_whose_audit_holds_and_a_copy_that_fails(ran):
    statuses = [ran[cell][0] for cell in COMMANDS]
    assert statuses == [0, 11, 0, 3]  # locked, SCREENED, held, changed
    assert of(ran, "confirm registrations/first")[1].startswith("SCREENED (n = 16 decides nothing)")
    assert "everything held" in of(ran, "audit registrations/first")[1]
    assert "AUDIT FAILED" in of(ran, "audit copy-of-first")[1]


@pytest.mark.soak
def test_what_it_looks_at_is_there_to_be_seen(ran):
    assert of(ran, "Image(").startswith(b"\x89PNG")
    means = of(ran, "groupby")
    assert set(means.index) == {"full", "h2o", "streaming"}
    assert means["correct"]["full"] >= 0.8  # its gate: what eviction costs can be seen
    assert (means["mean_slots"][["h2o", "streaming"]] < means["mean_slots"]["full"]).all()
    assert len(of(ran, "lost = solved")) > 0
