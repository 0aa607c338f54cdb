"""Progress display of a command: its phases, the elapsed time, and how far each phase is.

    with phases.show_phases():                 around all that a command does
        with phase("hashing the weights"):     prints nothing if no command shows it, as in a notebook
            ...

Lines go to standard error, so that output can be piped. A phase that lasts is one line, with the time since
the command began; a short phase prints nothing. In a terminal a live row below the lines moves, and vanishes
with its phase. No library is needed, since auditing and judging must work without those of running.
"""

import os
import select
import shutil
import signal
import sys
import threading
import time
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from typing import NamedTuple, TextIO, TypeAlias

from protocol.formats.escape import escape_control

SHOWN_AFTER = 0.7  # seconds before a phase gets a line, so that a command prints something within one
LINE_INTERVAL = 15.0  # seconds between two lines of one phase, at least
LINE_SHARE = 0.02  # interval as a share of the phase's time: a run of a day has hundreds of lines, not thousands
LAST_LINE_AFTER = 5.0  # seconds since the last line of a phase after which its end gets a line
TICK = 0.1
BAR = 20  # characters
QUIT = 130  # the exit status of a command that was interrupted
TERMINATED = 143  # the exit status after SIGTERM, from a batch system or a shutdown


class Progress(NamedTuple):
    """The progress of a phase. total: 0 if nothing is counted. left: seconds, None if unknown; of: what they
    are left of. more: text that may be cut off. heading: the current part of a phase with repeating parts.
    """

    words: str
    done: int = 0
    total: int = 0
    left: float | None = None
    of: str = ""
    more: str = ""
    heading: str = ""


ReportProgress: TypeAlias = Callable[[Progress], None]


class Phase:
    """A phase that has begun."""

    def __init__(self, words: str, now: float) -> None:
        self.words = words
        self.since = now  # when it began, or continued after a phase within it
        self.progress: Progress | None = None
        self.reported_at = now  # when `progress` was set
        self.heading_since = now  # when its heading was set
        self.headings = {""}  # headings that have a line
        self.line: str | None = None  # its last line
        self.line_at = now  # the time of that line
        self.next_line_at = 0.0  # the time of the next line

    def text(self, now: float, bar: str = "") -> str:
        if self.progress is None:
            return self.words
        left = None if self.progress.left is None else self.progress.left - (now - self.reported_at)
        heading = self.progress.heading or self.words
        left_text = f"{format_duration(left)} left{self.progress.of}" if left and left > 0 else ""
        words = ", ".join(part for part in (self.progress.words, left_text, self.progress.more) if part)
        return f"{heading}: {bar}{words}"


class Display:
    """The lines of a command and, if it is `live`, the row below them. began: in seconds of `clock`."""

    def __init__(
        self, stream: TextIO, *, live: bool, began: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream, self._live, self._began, self._clock = stream, live, began, clock
        self._phases: list[Phase] = []
        self._quiet, self._row, self._stopping = True, False, False
        self._lock = threading.RLock()

    def begin(self, words: str) -> Phase:
        with self._lock:
            self._leave()
            self._phases.append(Phase(words, self._clock()))
            return self._phases[-1]

    def end(self) -> None:
        with self._lock:
            self._leave()
            self._phases.pop()
            if self._phases:
                self._phases[-1].since = self._clock()

    def report(self, current: Phase, progress: Progress) -> None:
        with self._lock:
            now = self._clock()
            if current.progress is None or progress.heading != current.progress.heading:
                current.heading_since = now
            current.progress, current.reported_at = progress, now

    def note(self, line: str) -> None:
        """Print a line at once."""
        with self._lock:
            self._say(self._clock(), line)

    def tick(self) -> None:
        """Print the line that is due."""
        with self._lock:
            now = self._clock()
            current = self._phases[-1] if self._phases else None
            if current is None or not self._is_lasting(current, now):
                return
            if self._live:
                self._draw(current, now)
            elif current.line is None or (
                current.progress is not None and (now >= current.next_line_at or self._has_new_heading(current, now))
            ):
                current.headings |= {current.progress.heading} if current.progress is not None else set()
                current.next_line_at = now + max(LINE_INTERVAL, LINE_SHARE * (now - current.since))
                current.line, current.line_at = current.text(now), now
                self._say(current.since if current.progress is None else now, current.line)

    def stopping(self) -> None:
        """Print that Ctrl-C was pressed, while the running code has not noticed it yet."""
        with self._lock:
            if not self._stopping:
                self._stopping = True
                self._say(self._clock(), "stopping; press Ctrl-C again to quit at once")

    def close(self) -> None:
        with self._lock:
            self._phases.clear()
            self._erase()

    def _is_lasting(self, current: Phase, now: float) -> bool:
        """Return whether the phase is long enough for a line, or the command has run for long without any."""
        return now - current.since >= SHOWN_AFTER or (self._quiet and now - self._began >= SHOWN_AFTER)

    def _has_new_heading(self, current: Phase, now: float) -> bool:
        """Return whether the phase has a heading without a line that is old enough for one."""
        return (
            current.progress is not None
            and current.progress.heading not in current.headings
            and now - current.heading_since >= SHOWN_AFTER
        )

    def _leave(self) -> None:
        """Print the last line of a phase that ends, or that is interrupted by one within it.

        In a terminal every lasting phase gets the line; elsewhere only if progress was reported since its last line.
        """
        self._erase()
        if not self._phases:
            return
        current, now = self._phases[-1], self._clock()
        line = current.text(now)
        is_due = self._live or (current.progress is not None and now - current.line_at >= LAST_LINE_AFTER)
        if is_due and current.line != line and self._is_lasting(current, now):
            current.line = line
            self._say(current.since if current.progress is None else now, line)

    def _say(self, when: float, line: str) -> None:
        self._erase()
        self._quiet = False
        self._write(f"[{format_clock(max(0.0, when - self._began))}] {escape_control(line)}\n")

    def _draw(self, current: Phase, now: float) -> None:
        bar = ""
        if current.progress is not None and current.progress.total:
            filled = BAR * current.progress.done // current.progress.total
            bar = f"[{'#' * filled}{'-' * (BAR - filled)}] "
        row = fit_width(
            f"{format_clock(now - current.since)}  {escape_control(current.text(now, bar))}",
            shutil.get_terminal_size().columns,
        )
        self._row = True
        # The cursor stays at the start of the row, so that other output overwrites it.
        self._write(f"\r\x1b[2K{row}\r")

    def _erase(self) -> None:
        if self._row:
            self._row = False
            self._write("\r\x1b[2K")  # a terminal shows ^C where the cursor is

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # the reader has gone, or the stream is closed
            encoding = getattr(self._stream, "encoding", None) or "utf-8"
            self._stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
            self._stream.flush()


_DISPLAY: ContextVar[Display | None] = ContextVar("display", default=None)


@contextmanager
def phase(words: str) -> Iterator[ReportProgress]:
    """Show a phase, such as "hashing the weights", while the body runs; yields a function that reports progress."""
    display = _DISPLAY.get()
    if display is None:
        yield lambda progress: None
        return
    current = display.begin(words)
    try:
        yield lambda progress: display.report(current, progress)
    finally:
        display.end()


def note(line: str) -> None:
    """Print a line at once, if a command shows its phases."""
    if (display := _DISPLAY.get()) is not None:
        display.note(line)


@contextmanager
def show_phases() -> Iterator[None]:
    """Show the phases of the body on standard error; nested calls do nothing.

    Ctrl-C raises KeyboardInterrupt as usual; a second one ends the process at once, whatever it is doing.
    SIGTERM raises SystemExit, so that unpacked files are removed; a second one ends the process at once.
    """
    stream = sys.stderr
    if stream is None or _DISPLAY.get() is not None:
        yield
        return
    live = stream.isatty() and os.environ.get("TERM") != "dumb"
    display = Display(stream, live=live, began=_process_start())
    stop = threading.Event()
    with ExitStack() as stack:
        stack.enter_context(_handle_termination(display))
        signals = stack.enter_context(_handle_interrupt(display))
        thread = threading.Thread(target=_tick_display, args=(display, stop, signals), name="phases", daemon=True)
        token = _DISPLAY.set(display)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            _DISPLAY.reset(token)
            thread.join()
            display.close()


def _tick_display(display: Display, stop: threading.Event, signals: int | None) -> None:
    """Update the display. signals: a descriptor that yields a byte for every signal, even if this program is busy."""
    first: float | None = None
    while not stop.wait(TICK):
        while signals is not None and select.select([signals], [], [], 0)[0]:
            if os.read(signals, 1)[0] != signal.SIGINT:
                continue
            if first is not None:
                _quit(display)
            first = time.monotonic()
        if first is not None and time.monotonic() - first >= SHOWN_AFTER:
            display.stopping()
        display.tick()


def _quit(display: Display) -> None:
    display.close()
    os._exit(QUIT)


@contextmanager
def _handle_interrupt(display: Display) -> Iterator[int | None]:
    """Yield a descriptor from which the number of every signal that Python handles can be read, Ctrl-C among
    them; None if this thread or this system has none.

    The second Ctrl-C is handled by the thread that sees it first: this one, or the reading thread while this
    one is in a long computation.
    """
    previous = signal.getsignal(signal.SIGINT)
    is_default = threading.current_thread() is threading.main_thread() and previous is signal.default_int_handler
    if not is_default or os.name != "posix":
        yield None
        return
    first = True

    def interrupted(number: int, frame: object) -> None:
        nonlocal first
        if not first:
            _quit(display)
        first = False
        raise KeyboardInterrupt

    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    old_descriptor = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, interrupted)
    try:
        yield read_end
    finally:
        signal.signal(signal.SIGINT, previous)
        signal.set_wakeup_fd(old_descriptor)
        os.close(read_end)
        os.close(write_end)


@contextmanager
def _handle_termination(display: Display) -> Iterator[None]:
    """Raise SystemExit on SIGTERM, if SIGTERM would have ended this process."""
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def terminated(number: int, frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        display.note("terminated")
        raise SystemExit(TERMINATED)

    signal.signal(signal.SIGTERM, terminated)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _process_start() -> float:
    """Return the start time of this process, if it runs a command of ours; else the current time.

    A command that continues as another program, in the locked sources, counts from when it was typed. The
    current time is also used in a notebook, and if the system does not report the start.
    """
    now = time.monotonic()
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    if main is None or main.name.partition(".")[0] not in ("analysis", "figures", "protocol"):
        return now
    with suppress(OSError, ValueError, IndexError, AttributeError), open("/proc/self/stat") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])  # since the system started
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
        return now - max(0.0, age)
    return now


def format_clock(seconds: float) -> str:
    """Format a duration as 0:07, 12:07 or 3:12:07."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def format_duration(seconds: float) -> str:
    """Format an estimated duration in coarse units: 40 s, 12 min, 3 h 20 min."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, minutes = divmod(10 * round(minutes / 10), 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def fit_width(text: str, columns: int) -> str:
    """Cut `text` to a line that does not wrap; a character of East Asian text takes two columns."""
    remaining = columns - 1
    for index, character in enumerate(text):
        remaining -= 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if remaining < 0:
            return text[:index]
    return text
