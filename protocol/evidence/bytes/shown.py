"""Text of a stranger, as it may be printed: what a terminal obeys or hides is shown instead of sent.

Escapes are those of JSON, so that JSON that was printed reads as before.
"""

import os
import re
import sys
from contextlib import suppress
from typing import TextIO

__all__ = ["hush", "put", "shown"]

# Controls but the newline; what reorders, joins or hides text; separators that a terminal may break at;
# halves of surrogate pairs, which are no characters. `analysis.output.shown` has the same.
_HIDDEN = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4"
    "\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0"
    "\ufff0-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)


def shown(text: str) -> str:
    """`text` with \\u001b for an escape, and so on."""
    return _HIDDEN.sub(_escaped, text)


def put(text: str, stream: TextIO | None, end: str = "\n") -> None:
    """Print `text`, shown; what the encoding of the stream lacks is escaped too. None: one that was closed
    before this process began, to which nothing is printed. Nothing is either where the reader has gone
    (`| head`): what a command does and its exit status do not hang on who reads it to the end.
    """
    if stream is None:
        return
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        stream.write(shown(text + end).encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()
    except BrokenPipeError:
        hush(stream)


def hush(*streams: TextIO) -> None:
    """Let go of readers that have gone: what is written from now on, also by Python as it ends, goes nowhere.

    Without `streams`: of standard output and standard error, whichever it is.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in streams or (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            with suppress(OSError, ValueError):  # no file of its own
                os.dup2(nowhere, stream.fileno())
        except (AttributeError, OSError, ValueError):
            pass  # not there, full or closed: Python tells it as it ends
    os.close(nowhere)


def _escaped(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
