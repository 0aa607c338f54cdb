"""What a command says of itself while it works: its phases, how long it has run, and how far it is.

    with phases.showing():                     around all that a command does
        with phase("hashing the weights"):     says nothing where no command shows it, as in a notebook
            ...

On standard error, so that output can be piped. A phase that lasts is one line, with the time since the
command began; what ends soon says nothing. In a terminal a row below the lines moves, and vanishes with its
phase. No library is needed, since auditing and judging have to do without those of running.
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

from analysis.output.shown import shown

__all__ = ["At", "Display", "Tell", "lasting", "note", "phase", "showing"]

LASTS = 0.7  # seconds after which a phase is said, so that a command says something within one
EVERY = 15.0  # seconds between two lines of one phase at least
SHARE = 0.02  # and of the phase's own time, so that a run of a day has hundreds of lines and not thousands
AGAIN = 5.0  # seconds without a line of a phase after which its end is one
TICK = 0.1
BAR = 20  # characters
QUIT = 130  # the exit status of a command that was interrupted
TERMINATED = 143  # and of one that a batch system, or a shutdown, ended


class At(NamedTuple):
    """How far a phase is. total: 0 where nothing is counted. left: seconds, None where nothing tells, and of
    what. more: what may be cut off. heading: what is done now, where the phase has parts that come again.
    """

    words: str
    done: int = 0
    total: int = 0
    left: float | None = None
    of: str = ""
    more: str = ""
    heading: str = ""


Tell: TypeAlias = Callable[[At], None]


class Phase:
    """One that has begun."""

    def __init__(self, words: str, now: float) -> None:
        self.words = words
        self.since = now  # when it began, or went on after a phase within it
        self.at: At | None = None
        self.told = now  # when `at` was set
        self.turned = now  # when it got its heading
        self.headings = {""}  # of lines
        self.line: str | None = None  # the last one of it
        self.last = now  # when that was
        self.due = 0.0  # when the next one is

    def said(self, now: float, bar: str = "") -> str:
        if self.at is None:
            return self.words
        left = None if self.at.left is None else self.at.left - (now - self.told)
        heading = self.at.heading or self.words
        ahead = f"{lasting(left)} left{self.at.of}" if left and left > 0 else ""
        words = ", ".join(part for part in (self.at.words, ahead, self.at.more) if part)
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

    def tell(self, own: Phase, at: At) -> None:
        with self._lock:
            now = self._clock()
            if own.at is None or at.heading != own.at.heading:
                own.turned = now
            own.at, own.told = at, now

    def note(self, line: str) -> None:
        """Said at once."""
        with self._lock:
            self._say(self._clock(), line)

    def tick(self) -> None:
        """Say what is due."""
        with self._lock:
            now = self._clock()
            own = self._phases[-1] if self._phases else None
            if own is None or not self._lasts(own, now):
                return
            if self._live:
                self._draw(own, now)
            elif own.line is None or (own.at is not None and (now >= own.due or self._new(own, now))):
                own.headings |= {own.at.heading} if own.at is not None else set()
                own.due = now + max(EVERY, SHARE * (now - own.since))
                own.line, own.last = own.said(now), now
                self._say(own.since if own.at is None else now, own.line)

    def stopping(self) -> None:
        """Ctrl-C was pressed, and what runs has not noticed yet."""
        with self._lock:
            if not self._stopping:
                self._stopping = True
                self._say(self._clock(), "stopping; Ctrl-C again quits at once")

    def close(self) -> None:
        with self._lock:
            self._phases.clear()
            self._erase()

    def _lasts(self, own: Phase, now: float) -> bool:
        """Whether it has gone on for long enough to be worth a line, or the command has without any."""
        return now - own.since >= LASTS or (self._quiet and now - self._began >= LASTS)

    def _new(self, own: Phase, now: float) -> bool:
        """Whether it has a heading that no line of it has, and has had it for long enough."""
        return own.at is not None and own.at.heading not in own.headings and now - own.turned >= LASTS

    def _leave(self) -> None:
        """The phase ends, or one within it begins: in a terminal it becomes a line now, elsewhere the last
        that was told of it does.
        """
        self._erase()
        if not self._phases:
            return
        own, now = self._phases[-1], self._clock()
        line = own.said(now)
        due = self._live or (own.at is not None and now - own.last >= AGAIN)
        if due and own.line != line and self._lasts(own, now):
            own.line = line
            self._say(own.since if own.at is None else now, line)

    def _say(self, when: float, line: str) -> None:
        self._erase()
        self._quiet = False
        self._write(f"[{clock(max(0.0, when - self._began))}] {shown(line)}\n")

    def _draw(self, own: Phase, now: float) -> None:
        bar = ""
        if own.at is not None and own.at.total:
            full = BAR * own.at.done // own.at.total
            bar = f"[{'#' * full}{'-' * (BAR - full)}] "
        row = cut(
            f"{clock(now - own.since)}  {shown(own.said(now, bar))}", shutil.get_terminal_size().columns
        )
        self._row = True
        # The cursor waits at the start of the row: whatever else is printed takes its place.
        self._write(f"\r\x1b[2K{row}\r")

    def _erase(self) -> None:
        if self._row:
            self._row = False
            self._write("\r\x1b[2K")  # a terminal shows ^C where the cursor is

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # whoever read it has gone, or it was closed
            encoding = getattr(self._stream, "encoding", None) or "utf-8"
            self._stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
            self._stream.flush()


_SHOWN: ContextVar[Display | None] = ContextVar("display", default=None)


@contextmanager
def phase(words: str) -> Iterator[Tell]:
    """What is done inside, as "hashing the weights"; gives what takes how far it is."""
    display = _SHOWN.get()
    if display is None:
        yield lambda at: None
        return
    own = display.begin(words)
    try:
        yield lambda at: display.tell(own, at)
    finally:
        display.end()


def note(line: str) -> None:
    """Say a line at once, where a command shows its phases."""
    if (display := _SHOWN.get()) is not None:
        display.note(line)


@contextmanager
def showing() -> Iterator[None]:
    """Show the phases of what is done inside on standard error; the outermost does. Ctrl-C raises
    KeyboardInterrupt as ever, and pressed again ends the process at once, whatever it is doing. SIGTERM
    raises SystemExit, so that what was unpacked is removed; a second one ends the process at once.
    """
    stream = sys.stderr
    if stream is None or _SHOWN.get() is not None:
        yield
        return
    live = stream.isatty() and os.environ.get("TERM") != "dumb"
    display = Display(stream, live=live, began=_began())
    ends = threading.Event()
    with ExitStack() as held:
        held.enter_context(_terminates(display))
        pressed = held.enter_context(_interrupts(display))
        thread = threading.Thread(target=_tick, args=(display, ends, pressed), name="phases", daemon=True)
        token = _SHOWN.set(display)
        thread.start()
        try:
            yield
        finally:
            ends.set()
            _SHOWN.reset(token)
            thread.join()
            display.close()


def _tick(display: Display, ends: threading.Event, pressed: int | None) -> None:
    """pressed: a byte can be read from it for every signal, whatever the main thread is busy with."""
    first: float | None = None
    while not ends.wait(TICK):
        while pressed is not None and select.select([pressed], [], [], 0)[0]:
            if os.read(pressed, 1)[0] != signal.SIGINT:
                continue
            if first is not None:
                _quit(display)
            first = time.monotonic()
        if first is not None and time.monotonic() - first >= LASTS:
            display.stopping()
        display.tick()


def _quit(display: Display) -> None:
    display.close()
    os._exit(QUIT)


@contextmanager
def _interrupts(display: Display) -> Iterator[int | None]:
    """A descriptor from which the number of every signal can be read that Python handles, Ctrl-C among them;
    None where this thread, or this system, has none. The second Ctrl-C is then answered by whoever sees it
    first: this thread, or the one that reads, while this one is in a long computation.
    """
    before = signal.getsignal(signal.SIGINT)
    own = threading.current_thread() is threading.main_thread() and before is signal.default_int_handler
    if not own or os.name != "posix":
        yield None
        return
    first = True

    def interrupted(number: int, frame: object) -> None:
        nonlocal first
        if not first:
            _quit(display)
        first = False
        raise KeyboardInterrupt

    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    woken = signal.set_wakeup_fd(writes, warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, interrupted)
    try:
        yield reads
    finally:
        signal.signal(signal.SIGINT, before)
        signal.set_wakeup_fd(woken)
        os.close(reads)
        os.close(writes)


@contextmanager
def _terminates(display: Display) -> Iterator[None]:
    """SIGTERM raises SystemExit, where it would have ended this process."""
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


def _began() -> float:
    """When this process began, where it runs a command of ours: one that goes on as another program, in the
    locked sources, counts from when it was typed. Else now: in a notebook, and where no system says it.
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


def clock(seconds: float) -> str:
    """0:07, 12:07 or 3:12:07."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def lasting(seconds: float) -> str:
    """In words, as coarse as an estimate is: 40 s, 12 min, 3 h 20 min."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, minutes = divmod(10 * round(minutes / 10), 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def cut(text: str, columns: int) -> str:
    """As much of `text` as fits into a line that does not wrap: of East Asian text a character takes two."""
    room = columns - 1
    for place, character in enumerate(text):
        room -= 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if room < 0:
            return text[:place]
    return text
