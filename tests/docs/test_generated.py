"""What docs/generate.py writes is what lies there."""

import importlib.util

import pytest
from looped import looped
from studies import ROOT

SPEC = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
assert SPEC is not None
assert SPEC.loader is not None
generate = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(generate)


@looped("page", generate.FILES)
def test_a_generated_page_is_what_the_code_gives(page):
    assert (ROOT / "docs" / page).read_text() == generate.FILES[page](), "run: python docs/generate.py"


def test_every_module_stands_in_its_page_once():
    listed = [line for line in generate.files().splitlines() if line.startswith(("## ", "- "))]
    modules = [path for package in generate.PACKAGES for path in (ROOT / package).rglob("*.py")]
    assert len(listed) == len(set(modules))


def test_a_module_without_a_docstring_is_refused_by_name(tmp_path):
    (tmp_path / "silent.py").write_text("value = 1\n")
    with pytest.raises(ValueError, match=r"silent\.py: begin it with a docstring"):
        generate.said(tmp_path / "silent.py")
