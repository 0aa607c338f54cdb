"""Every `pip install` line that is printed or written works as it is typed in a clone: no index has this project."""

import re
import tomllib

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


def targets():
    """Everything that a line installs, with the file that has the line."""
    for path in files():
        for words in LINE.findall(path.read_text("utf-8")):
            for word in words.split():
                if not word.startswith("-"):
                    yield path.relative_to(ROOT).as_posix(), word.strip("'")


def is_installable(target: str) -> bool:
    extras = re.fullmatch(r"\.\[([a-z,]+)\]", target)
    if extras:
        return set(extras[1].split(",")) <= EXTRAS.keys()
    return target in {".", OWN_PACKAGE} or any(target in pins for pins in EXTRAS.values())


def test_every_line_installs_the_clone_an_extra_that_it_has_or_a_pinned_library():
    wrong = [f"{place}: {target}" for place, target in targets() if not is_installable(target)]
    assert wrong == []
    assert len([*targets()]) > 20


@pytest.mark.parametrize("target", ["kv-prereg", "kv-prereg[run]", ".[ruin]", "kvpress"])
def test_what_no_index_has_and_what_is_not_pinned_is_noticed(target):
    assert not is_installable(target)


def test_no_line_names_the_project_as_an_index_would():
    for path in files():
        assert not re.search(r"kv-prereg\[|pip install '?kv-prereg", path.read_text("utf-8")), path
