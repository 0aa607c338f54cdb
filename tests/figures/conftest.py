"""A shipped study that is drawn and reported once for all tests that look at it."""

from pathlib import Path

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
