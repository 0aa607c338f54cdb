"""Every decision has a page, stands in the list, and ends with tests that are there."""

import re

from looped import looped
from studies import ROOT

FOLDER = ROOT / "docs" / "decisions"
PAGES = sorted(path for path in FOLDER.glob("*.md") if path.name != "README.md")


@looped("page", PAGES, ids=lambda page: page.stem)
def test_it_ends_with_the_tests_that_hold_it(page):
    held = page.read_text().partition("\nHeld by:\n\n")[2]
    tests = re.findall(r"^- `(test_\w+)`\n  in `(tests/[\w/]+\.py)`$", held, re.MULTILINE)
    assert 0 < len(tests) == held.count("- `")
    for test, file in tests:
        assert f"def {test}(" in (ROOT / file).read_text(), f"{file}: {test} is gone"


def test_each_stands_in_the_list_under_its_own_title():
    listed = re.findall(r"^- \[(.+)\]\((.+)\)$", (FOLDER / "README.md").read_text(), re.MULTILINE)
    titles = [(page.read_text().splitlines()[0].removeprefix("# "), page.name) for page in PAGES]
    assert sorted(listed) == sorted(titles)


def test_each_choice_is_short():
    choices = [choice for page in PAGES for choice in page.read_text().partition("\nHeld by:")[0].split("\n## ")]
    assert max(len(choice.splitlines()) for choice in choices) <= 60


def test_pages_are_numbered_in_the_order_of_the_list():
    listed = re.findall(r"^- \[.+\]\((.+)\)$", (FOLDER / "README.md").read_text(), re.MULTILINE)
    numbers = [int(name.partition("-")[0]) for name in listed]
    assert numbers == sorted({*numbers})
