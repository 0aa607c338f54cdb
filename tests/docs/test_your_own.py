"""docs/your-own.md is followed in a folder of its own, to the letter."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import studies
from studies import ROOT

from protocol.command.menu import MENU
from protocol.workspace import imports

PAGE = (ROOT / "docs" / "your-own.md").read_text()
FILES = dict(re.findall(r"^```(?:python|toml) (\S+)\n(.*?)^```$", PAGE, re.M | re.S))
COMMANDS = [
    line
    for block in re.findall(r"^```console\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
]
OWN = ("my-policy/my_policy.py", "my-policy/pyproject.toml", "make_questions.py")


@pytest.mark.parametrize("name", OWN)
def test_what_is_ones_own_takes_ten_lines(name):
    assert len([line for line in FILES[name].splitlines() if line]) <= 10


@pytest.fixture(scope="module")
def followed(tmp_path_factory, forked_workers):
    """What each command of the page printed, in its order."""
    here = tmp_path_factory.mktemp("clone")
    (here / "protocol" / "embedded").mkdir(parents=True)
    shutil.copytree(ROOT / "protocol/embedded/programs-llama", here / "protocol/embedded/programs-llama")
    for name, text in FILES.items():
        path = here / name
        if path.parent.name != "mine":  # a script of the page makes that folder
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    said = {}
    forget_installed()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        patch.syspath_prepend(str(here / "site"))
        places = imports._site_folders() | {str((here / "site").resolve())}  # what is installed is read once here
        patch.setattr(imports, "_site_folders", lambda: places)
        for command in COMMANDS:
            said[command] = carried_out(here, command)
            for name, text in FILES.items():
                if not (here / name).exists() and (here / name).parent.is_dir():
                    (here / name).write_text(text)
        yield said
        sys.modules.pop("my_policy", None)
    forget_installed()


def forget_installed() -> None:
    """What is installed changes here, and a worker reads it anew."""
    studies.surroundings.cache_clear()
    studies.installed.cache_clear()


def carried_out(here: Path, command: str) -> str:
    """Commands of this project run in this process, which has torch already."""
    words = shlex.split(command)
    if words[0] == "kv-prereg":
        words = ["python", "-m", MENU[words[1]].module, *words[2:]]
    if words[:2] == ["python", "-m"] and words[2].startswith("protocol.") and words[2] != "protocol.tasks":
        return studies.ran((0, 11), words[2].removeprefix("protocol."), *words[3:]).stdout
    if words[0] == "pip":  # as pip does it, without a network
        words = [*words, "--no-build-isolation", "--no-deps", "--quiet", "--target", "site"]
        words = [sys.executable, "-m", *words]
        forget_installed()
    done = subprocess.run(
        [sys.executable if word == "python" else word for word in words],
        env={"PYTHONPATH": f"{ROOT}:site", "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_page_ends_in_a_verdict_that_an_audit_holds(followed):
    assert "small-vectors" in followed["kv-prereg policies small-vectors"]
    confirmed = followed["kv-prereg confirm registrations/mine"]
    assert confirmed.startswith("SCREENED")
    audited = followed["kv-prereg audit registrations/mine"]
    assert "failed" not in audited.casefold().replace("0 failed", "")
