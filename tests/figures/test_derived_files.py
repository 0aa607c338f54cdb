"""What is derived from a study is written at will: the repository holds what a page of it shows or links."""

import re
import subprocess

import pytest
import reports

from analysis.judgement.study_files import read_study
from figures.drawing import page
from figures.plots.collapse import count_endings, format_markdown

DERIVED = re.compile(r"registrations/(?:[\w-]+/(?:figures/[\w.-]+|report\.html)|index\.html)")
PAGES = [reports.ROOT / "README.md", reports.ROOT / "ARCHITECTURE.md", *reports.ROOT.glob("docs/**/*.md")]


@pytest.mark.skipif(not (reports.ROOT / ".git").exists(), reason="what is tracked, git knows")
def test_what_is_tracked_of_what_is_derived_is_what_is_linked():
    listed = subprocess.run(
        ["git", "ls-files", "registrations"], cwd=reports.ROOT, capture_output=True, text=True, check=True
    )
    tracked = {path for path in listed.stdout.splitlines() if DERIVED.fullmatch(path)}
    linked = {path for page in PAGES for path in DERIVED.findall(page.read_text())}
    assert tracked == linked


def test_the_tracked_table_of_answers_is_that_of_the_records():
    folder = reports.SHIPPED / "alpha-chain"
    text = format_markdown(page.read_judged(folder), count_endings(read_study(folder).lanes))
    assert text == (folder / "figures" / "collapse.md").read_text("utf-8")
