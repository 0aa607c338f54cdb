"""Print untrusted text safely: characters that a terminal obeys or hides are escaped.

The escapes are those of JSON, so printed JSON still parses to the same value.
"""

import os
import re
import sys
from contextlib import suppress
from typing import TextIO

from protocol.formats.terminal import style_verdicts, supports_colour

# Control characters except the newline; characters that reorder, join or hide text; line separators;
# lone surrogates.
_CONTROL = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4"
    "\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0"
    "\ufff0-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)


def escape_control(text: str) -> str:
    """Return `text` with control characters escaped, such as \\u001b for ESC."""
    return _CONTROL.sub(_escape_match, text)


def is_one_line(text: str) -> bool:
    """Return whether a text prints no line of its own: it has no line break, of whatever kind."""
    return len(f"{text}.".splitlines()) == 1


def escape_tags(markdown: str) -> str:
    """Return Markdown in which no text of a study begins a tag of HTML; "p < 0.05" stays."""
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", markdown)


def print_escaped(text: str, stream: TextIO | None, end: str = "\n") -> None:
    """Print `text` with control characters escaped, and characters that the stream cannot encode.

    Nothing is printed to a stream that was closed before this process began (None) or whose reader has gone
    (`| head`): neither changes what a command does or its exit status. Standard output that cannot be written to
    otherwise, as on a full disk, ends the process with one line and status 2.
    """
    if stream is None:
        return
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        stream.write(_prepare(text + end, stream).encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()
    except OSError as error:
        give_up(stream, error)


def silence_broken_pipes(*streams: TextIO) -> None:
    """Write what streams have not written yet, before Python does so at exit; see `give_up` where that fails.

    Without `streams`, standard output and standard error are checked.
    """
    for stream in streams or (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError as error:
            give_up(stream, error)
        except (AttributeError, ValueError):
            pass  # missing or closed


def give_up(stream: TextIO, error: OSError) -> None:
    """Redirect a stream that cannot be written to the null device, so that later writes raise nothing. Raises
    SystemExit(2), after one line on standard error, for standard output whose reader has not just gone.
    """
    with suppress(OSError, ValueError):  # the stream has no file descriptor
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, stream.fileno())
        os.close(devnull)
    if stream is sys.stdout and not isinstance(error, BrokenPipeError):
        print_escaped(f"OSError: standard output: {error.strerror}; the output is incomplete", sys.stderr)
        raise SystemExit(2) from None


def print_bytes(text: str) -> None:
    """Print `text` with control characters escaped as a line of UTF-8, whatever the encoding of standard output."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.buffer.write(_prepare(text, sys.stdout).encode() + b"\n")
        sys.stdout.buffer.flush()
    except OSError as error:
        give_up(sys.stdout, error)


def _prepare(text: str, stream: TextIO) -> str:
    """Escape control characters, and style verdicts for a terminal; JSON stays as it is."""
    escaped = escape_control(text)
    return style_verdicts(escaped) if supports_colour(stream) and not text.startswith("{") else escaped


def _escape_match(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))
