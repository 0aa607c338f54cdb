"""The Markdown of this repository, as the tests of its prose read it."""

import re
from pathlib import Path

from studies import ROOT

FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
RUNNABLE = ("protocol", "policies", "analysis", "figures", "splits", "benchmarks")


GENERATED = (ROOT / "docs/files.md",)  # by `make docs`; git does not have it


def pages() -> list[Path]:
    """Pages of the repository; what a registration holds is evidence."""
    folders = ("*.md", "docs/**/*.md", "benchmarks/*.md", "protocol/embedded/*/*.md")
    return [path for folder in folders for path in sorted(ROOT.glob(folder)) if path not in GENERATED]


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> str:
    """What stands in fences."""
    return "\n".join(FENCED.findall(page.read_text()))


def commands() -> set[str]:
    """Every module that is run by its name."""
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__")
        for package in RUNNABLE
        for path in (ROOT / package).rglob("*.py")
        if '__name__ == "__main__"' in path.read_text()
    }
