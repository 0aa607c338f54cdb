"""Every `pip install` line that is printed or written works as it is typed in a clone: no index has this project."""

import re
import shlex
import shutil
import subprocess
import tomllib
import venv
from pathlib import Path

import pytest
from studies import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
PLACES = ("protocol", "policies", "analysis", "figures", "splits", "docs", ".github", "README.md", "ARCHITECTURE.md")
SUFFIXES = {".py", ".md", ".ipynb", ".toml", ".yml", ".html"}
OWN_PACKAGE = "./my-policy"  # what docs/your-own.md has a reader write
LINE = re.compile(r"pip install((?: +(?:-[-\w]+|'[^'\s]+'|[\w.][\w.,=/\[\]-]*(?<![.,])|\.(?![\w])))+)")


def files():
    for place in PLACES:
        path = ROOT / place
        yield from [path] if path.is_file() else (one for one in path.rglob("*") if one.suffix in SUFFIXES)


def lines():
    """The words after `pip install` of every line, with the file that has it."""
    for path in files():
        for words in LINE.findall(path.read_text("utf-8")):
            yield path.relative_to(ROOT).as_posix(), words.strip()


def targets():
    """Everything that a line installs, with the file that has the line."""
    return [(place, word) for place, words in lines() for word in shlex.split(words) if not word.startswith("-")]


def is_installable(target: str) -> bool:
    extras = re.fullmatch(r"\.\[([a-z,]+)\]", target)
    if extras:
        return set(extras[1].split(",")) <= EXTRAS.keys()
    return target in {".", OWN_PACKAGE} or any(target in pins for pins in EXTRAS.values())


def test_every_line_installs_the_clone_an_extra_that_it_has_or_a_pinned_library():
    wrong = [f"{place}: {target}" for place, target in targets() if not is_installable(target)]
    assert wrong == []
    assert len(targets()) > 20


@pytest.mark.parametrize("target", ["kv-prereg", "kv-prereg[run]", ".[ruin]", "kvpress"])
def test_what_no_index_has_and_what_is_not_pinned_is_noticed(target):
    assert not is_installable(target)


def test_no_line_names_the_project_as_an_index_would():
    for path in files():
        assert not re.search(r"kv-prereg\[|pip install '?kv-prereg", path.read_text("utf-8")), path


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """What pip reads of a clone, and the package that docs/your-own.md has a reader write there."""
    here = tmp_path_factory.mktemp("clone") / "kv-prereg"
    here.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, here)
    for package in ("protocol", "policies", "analysis", "figures", "splits", "kv_prereg"):
        shutil.copytree(ROOT / package, here / package, ignore=shutil.ignore_patterns("__pycache__"))
    page = (ROOT / "docs/your-own.md").read_text("utf-8")
    for name, text in re.findall(r"^```(?:python|toml) (my-policy/\S+)\n(.*?)^```$", page, re.M | re.S):
        (here / name).parent.mkdir(exist_ok=True)
        (here / name).write_text(text)
    return here


def run(here: Path, *command: object, status: int = 0) -> str:
    """Return what the command prints."""
    done = subprocess.run([*map(str, command)], cwd=here, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == status, done.stdout
    return done.stdout


@pytest.mark.soak
@pytest.mark.parametrize("words", sorted({words for _, words in lines()}))
def test_every_line_installs_what_it_says_as_it_is_typed(words, clone, tmp_path):
    """In a new environment, with the CPU build of torch where a line wants torch; then all that is there fits."""
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv/bin/python"
    if re.search("run|tasks|kvpress", words):
        run(clone, python, "-m", "pip", "install", "-q", "torch==2.13.0")
    run(clone, "sh", "-c", f"{shlex.quote(str(tmp_path / 'venv/bin/pip'))} install -q {words}")
    run(clone, python, "-m", "pip", "check")
    names = "import importlib.metadata as m; print(*sorted(each.name for each in m.distributions()))"
    installed = run(tmp_path, python, "-P", "-c", names).replace("_", "-").casefold().split()
    for target in shlex.split(words):
        extras = re.fullmatch(r"\.(?:\[([a-z,]+)\])?", target)
        pins = [pin for extra in (extras[1] or "").split(",") if extra for pin in EXTRAS[extra]] if extras else [target]
        own = ["kv-prereg"] if extras else []
        wanted = [*own, *(re.split(r"[=<>]", Path(pin).name)[0].replace("_", "-").casefold() for pin in pins)]
        assert set(wanted) <= set(installed)
    if words == ".":
        assert "torch" not in installed
        command = tmp_path / "venv/bin/kv-prereg"
        assert "everything held; SCREENED" in run(tmp_path, command, "audit", ROOT / "registrations/quickstart")
        refused = run(tmp_path, command, "claims", "analysis/published/epikv.toml", status=2)
        assert refused.endswith("only a clone of this project contains these papers, not an installed package\n")
    shutil.rmtree(tmp_path / "venv")
