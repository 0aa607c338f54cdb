"""A shipped study that is drawn and reported once for all tests that look at it."""

from collections.abc import Iterator
from pathlib import Path

import browser
import pytest
import reports

from analysis.judgement import recorded_judgement
from figures import report, study


@pytest.fixture(autouse=True)
def made_up_judgements_are_drawn(monkeypatch):
    """That records support a verdict is for tests/attacks/test_unsupported_verdicts.py."""
    monkeypatch.setattr(recorded_judgement, "refuse_unsupported", lambda folder: None)


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
