"""The README's file list is the tree as it is."""

import re

from studies import ROOT

PACKAGES = ("protocol", "policies", "splits", "analysis", "figures", "benchmarks")


def test_the_readme_lists_every_source_file_and_no_other():
    listed = set(
        re.findall(rf"^((?:{'|'.join(PACKAGES)})/\S+\.py) ", (ROOT / "README.md").read_text(), re.MULTILINE)
    )
    there = {
        path.relative_to(ROOT).as_posix() for package in PACKAGES for path in (ROOT / package).rglob("*.py")
    }
    empty = {name for name in there if not (ROOT / name).read_text().strip()}
    assert listed == there - empty
