"""A study in progress, seen from another terminal: by whom it is run, and how far it is."""

import os
from datetime import datetime

import finished_study as toy
import pytest

from protocol.acts import status
from protocol.evidence.run import claim
from protocol.evidence.run.registration import Registration
from protocol.running import under_way
from protocol.running.under_way import UnderWay


@pytest.fixture
def claimed(tmp_path):
    """Two of its lanes are recorded."""
    folder = tmp_path / "registrations" / "study"
    folder.parent.mkdir()
    toy.locked(folder)
    toy.confirm(folder, stop_after=2)
    return Registration(folder)


def test_what_no_process_holds_is_run_by_nobody(claimed):
    found = under_way.under_way(claimed)
    assert (found.phase, found.pid, found.found, found.recorded) == ("confirm", None, 0, 2)
    assert found.left is None


@pytest.mark.skipif(not under_way.LOCKS.exists(), reason="Linux lists who holds a file")
def test_the_process_that_holds_it_is_named_and_is_not_disturbed(claimed):
    with claim.running(claimed):
        assert under_way.under_way(claimed.anew()).pid == os.getpid()
    with claim.running(claimed):  # still to be had
        pass
    assert under_way.under_way(claimed.anew()).pid is None


def test_a_study_that_is_sealed_or_was_not_begun_is_not_under_way(tmp_path):
    toy.locked(tmp_path / "study")
    assert under_way.under_way(Registration(tmp_path / "study")) is None
    toy.confirm(tmp_path / "study")
    assert under_way.under_way(Registration(tmp_path / "study")) is None


SEEN = UnderWay("confirm", began=1000.0, last=1060.0, found=20, recorded=50, lanes=110, pid=7)


def test_the_time_left_is_from_the_speed_since_the_attempt_began(monkeypatch):
    """30 lanes took 60 s, 60 are missing, and the last record is 10 s old."""
    monkeypatch.setattr(under_way.time, "time", lambda: 1070.0)
    assert SEEN.left == pytest.approx(60 * 2 - 10)
    assert SEEN._replace(recorded=20).left is None
    assert SEEN._replace(lanes=None).left is None
    assert SEEN._replace(pid=None).left is None


def test_it_is_said_in_a_line(monkeypatch):
    monkeypatch.setattr(under_way.time, "time", lambda: 1070.0)
    began = datetime.fromtimestamp(1000.0).astimezone().isoformat(" ", "minutes")
    assert status.running(SEEN) == (
        f"confirm runs since {began} as process 7: 50 of 110 lanes recorded, 30 a minute, about 2 min left"
    )
    assert status.running(SEEN._replace(pid=None)) == (
        f"confirm began {began} and no process here runs it now: 50 of 110 lanes recorded"
    )
