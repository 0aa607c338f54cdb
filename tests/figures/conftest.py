"""A shipped study that is drawn and reported once for all tests that look at it."""

from collections.abc import Iterator
from pathlib import Path

import browser
import pytest
import reports

from figures import report, study


@pytest.fixture(scope="session")
def quickstart(tmp_path_factory) -> Path:
    folder = reports.copied(tmp_path_factory.mktemp("reports") / "quickstart")
    assert report.report(folder) == folder / "report.html"
    return folder


@pytest.fixture
def undrawn(monkeypatch):
    """Drawings take their time, and many tests are about words."""
    monkeypatch.setattr(study, "draw", lambda folder, witness, to: ())


@pytest.fixture(scope="session")
def opened(tmp_path_factory) -> Iterator[browser.Browser]:
    """One browser for all tests that look at pages."""
    if browser.found() is None:
        pytest.skip("no Chromium: set CHROMIUM, or put one on the path")
    with browser.opened(tmp_path_factory.mktemp("browser") / "profile") as one:
        yield one
