"""A study in progress, seen from another terminal: by whom it is run, and how far it is."""

import os
from datetime import datetime

import finished_study as toy
import pytest

from protocol import status
from protocol.evidence import claim
from protocol.evidence.registration import Registration
from protocol.run import run_status
from protocol.run.run_status import RunStatus


@pytest.fixture
def claimed(tmp_path):
    """Two of its lanes are recorded."""
    folder = tmp_path / "registrations" / "study"
    folder.parent.mkdir()
    toy.locked(folder)
    toy.confirm(folder, stop_after=2)
    return Registration(folder)


def test_what_no_process_holds_is_run_by_nobody(claimed):
    found = run_status.read_run_status(claimed)
    assert (found.phase, found.pid, found.recorded_before, found.recorded) == ("confirm", None, 0, 2)
    assert found.seconds_left is None


@pytest.mark.skipif(not run_status.PROC_LOCKS.exists(), reason="Linux lists who holds a file")
def test_the_process_that_holds_it_is_named_and_is_not_disturbed(claimed):
    with claim.exclusive_run(claimed):
        assert run_status.read_run_status(claimed.reopen()).pid == os.getpid()
    with claim.exclusive_run(claimed):  # still to be had
        pass
    assert run_status.read_run_status(claimed.reopen()).pid is None


def test_a_study_that_is_sealed_or_was_not_begun_is_not_under_way(tmp_path):
    toy.locked(tmp_path / "study")
    assert run_status.read_run_status(Registration(tmp_path / "study")) is None
    toy.confirm(tmp_path / "study")
    assert run_status.read_run_status(Registration(tmp_path / "study")) is None


SEEN = RunStatus("confirm", started_at=1000.0, last_record_at=1060.0, recorded_before=20, recorded=50, lanes=110, pid=7)


def test_the_time_left_is_from_the_speed_since_the_attempt_began(monkeypatch):
    """30 lanes took 60 s, 60 are missing, and the last record is 10 s old."""
    monkeypatch.setattr(run_status.time, "time", lambda: 1070.0)
    assert SEEN.seconds_left == pytest.approx(60 * 2 - 10)
    assert SEEN._replace(recorded=20).seconds_left is None
    assert SEEN._replace(lanes=None).seconds_left is None
    assert SEEN._replace(pid=None).seconds_left is None


def test_it_is_said_in_a_line(monkeypatch):
    monkeypatch.setattr(run_status.time, "time", lambda: 1070.0)
    began = datetime.fromtimestamp(1000.0).astimezone().isoformat(" ", "minutes")
    assert status.format_running(SEEN) == (
        f"confirm has been running since {began} as process 7: 50 of 110 lanes recorded, 30 a minute, about 2 min left"
    )
    assert status.format_running(SEEN._replace(pid=None)) == (
        f"confirm began {began}, but no process here is running it now: 50 of 110 lanes recorded"
    )
