"""A page names only files that are there."""

import re

import pytest
from studies import ROOT


@pytest.mark.parametrize("page", ["README.md", "ARCHITECTURE.md", "docs/evidence.md", "docs/statistics.md"])
def test_every_python_file_that_a_page_names_exists(page):
    text = (ROOT / page).read_text()
    named = set(re.findall(r"`((?:protocol|policies|analysis|figures|splits|tests|benchmarks)/[\w/]+\.py)`", text))
    assert {name for name in named if not (ROOT / name).exists()} == set()
