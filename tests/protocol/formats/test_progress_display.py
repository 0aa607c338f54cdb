"""What a command says while it works, on a clock that the test turns."""

import io
import os
import signal
import subprocess
import sys

import pytest
import studies

from protocol.formats import progress_display
from protocol.formats.progress_display import Display, Progress, phase

# A shell that runs the tests in the background has their processes ignore Ctrl-C.
SHOWN = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from protocol.formats import progress_display
with progress_display.show_phases():
    try:
        with progress_display.phase("waiting"):
            print("ready", flush=True)
            {waiting}
    finally:
        {after}
"""


class Clock:
    def __init__(self, live=False):
        self.now, self.stream = 1000.0, io.StringIO()
        self.display = Display(self.stream, live=live, began=self.now, clock=lambda: self.now)

    def pass_by(self, seconds):
        for _ in range(round(10 * seconds)):
            self.now += 0.1
            self.display.tick()

    @property
    def said(self):
        return self.stream.getvalue()

    @property
    def lines(self):
        return self.said.splitlines()


def test_what_ends_soon_says_nothing():
    told = Clock()
    told.display.begin("checking")
    told.pass_by(0.6)
    told.display.end()
    told.display.close()
    assert told.said == ""


def test_a_phase_that_lasts_is_one_line_with_the_time_at_which_it_began():
    told = Clock()
    told.display.begin("checking")
    told.pass_by(3)
    told.display.end()
    told.display.begin("hashing the weights")
    told.pass_by(60)
    told.display.end()
    assert told.lines == ["[0:00] checking", "[0:03] hashing the weights"]


def test_something_is_said_within_a_second_however_short_the_phases_are():
    told = Clock()
    for _ in range(3):
        told.display.begin("a third of it")
        told.pass_by(0.3)
        told.display.end()
    assert len(told.lines) == 1


def test_a_phase_within_another_has_its_own_line_and_the_outer_one_none_that_is_false():
    told = Clock()
    told.display.begin("outer")
    told.display.begin("inner")
    told.pass_by(2)
    told.display.end()
    told.pass_by(0.5)
    told.display.end()
    assert told.lines == ["[0:00] inner"]


def test_how_far_it_is_comes_at_once_then_every_15_seconds_and_ever_less_often():
    told = Clock()
    own = told.display.begin("decoding")
    for done in range(100):
        told.display.report(own, Progress(f"{done} of 100"))
        told.pass_by(1)
    assert told.lines[0] == "[0:00] decoding: 0 of 100"
    assert len(told.lines) == 7  # after 0.7 s, then 15 s each: a hundred seconds hold six more
    for _ in range(100):
        told.pass_by(60)
    # 15 s up to 750 s, then 2 % of the time so far: fewer than 45 and ln(6100 / 750) / ln(1.02) = 106 more
    assert 100 < len(told.lines) < 165


def test_the_last_that_was_told_is_a_line():
    told = Clock()
    own = told.display.begin("decoding")
    told.display.report(own, Progress("1 of 2"))
    told.pass_by(10)
    told.display.report(own, Progress("2 of 2"))
    told.display.end()
    assert told.lines == ["[0:00] decoding: 1 of 2", "[0:10] decoding: 2 of 2"]


def test_a_heading_is_a_line_when_it_is_new_and_lasts_and_not_each_time_it_comes_again():
    told = Clock()
    own = told.display.begin("running")
    for heading, seconds in (("loading", 3), ("prefilling", 0.2), ("decoding", 2), ("prefilling", 1), ("decoding", 1)):
        told.display.report(own, Progress("x", heading=heading))
        told.pass_by(seconds)
    assert [line.partition(" ")[2] for line in told.lines] == ["loading: x", "decoding: x", "prefilling: x"]


def test_the_time_left_goes_down_and_is_not_said_once_it_has_run_out():
    told = Clock(live=True)
    own = told.display.begin("decoding")
    told.display.report(own, Progress("1 of 2", 1, 2, 30.0, " of this task", "where"))
    told.pass_by(10)
    assert "decoding: [##########----------] 1 of 2, 20 s left of this task, where" in told.said
    told.pass_by(30)
    assert told.said.rpartition("\r\x1b[2K")[2].endswith("  decoding: [##########----------] 1 of 2, where\r")


def test_in_a_terminal_a_row_moves_and_leaves_nothing_but_the_line_of_its_phase():
    told = Clock(live=True)
    told.display.begin("hashing")
    told.pass_by(3)
    told.display.end()
    rows = told.said.split("\r\x1b[2K")
    assert len(rows) > 10
    assert rows[0] == ""
    assert all(row.endswith("hashing\r") for row in rows[1:-1])
    assert rows[-1] == "[0:00] hashing\n"
    assert told.said.count("\n") == 1


def test_a_row_never_wraps_and_what_a_stranger_wrote_is_shown(monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    told = Clock(live=True)
    told.display.begin("loading \x1b[31m漢字漢字漢字漢字漢字")
    told.pass_by(1)
    row = told.said.rpartition("\r\x1b[2K")[2].removesuffix("\r")
    assert "\x1b" not in row
    assert row == "0:01  loading \\u001"[: len(row)]
    assert len(row) < 20
    assert progress_display.fit_width("漢字漢字", 6) == "漢字"


def test_a_reader_that_has_gone_stops_nobody():
    class Gone(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    display = Display(Gone(), live=False, began=0.0, clock=lambda: 10.0)
    display.begin("checking")
    display.note("continuing")
    display.tick()


def test_where_nothing_shows_them_phases_are_silent(capsys):
    with phase("hashing") as tell:
        tell(Progress("1 of 2"))
        progress_display.note("continuing")
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.2, "1 s"), (40, "40 s"), (89, "89 s"), (90, "2 min"), (5000, "83 min"), (5400, "1 h 30 min"), (7200, "2 h")],
)
def test_an_estimate_is_as_coarse_as_it_is_known(seconds, said):
    assert progress_display.format_duration(seconds) == said


def shown(waiting, after="pass"):
    code = SHOWN.format(waiting=waiting, after=after)
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=studies.ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_second_interrupt_ends_a_command_that_takes_long_to_stop():
    process = shown("time.sleep(60)", "time.sleep(60)")
    process.send_signal(signal.SIGINT)
    while "stopping; press Ctrl-C again to quit at once" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, "", "")


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_command_that_is_terminated_cleans_up_and_says_so():
    process = shown("time.sleep(60)", "print('removed', flush=True)")
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (143, "removed\n")
    assert "terminated\n" in err
