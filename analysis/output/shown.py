"""Text of a stranger, as it may be printed: what a terminal obeys or hides is shown instead of sent.

Escapes are those of JSON, so that JSON that was printed reads as before.
"""

import os
import re
import sys
from contextlib import suppress
from typing import TextIO

__all__ = ["print_bytes", "put", "shown"]

# Controls but the newline; what reorders, joins or hides text; separators that a terminal may break at;
# halves of surrogate pairs, which are no characters. `protocol.evidence.bytes.shown` has the same.
_HIDDEN = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4"
    "\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0"
    "\ufff0-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)


def shown(text: str) -> str:
    """`text` with \\u001b for an escape, and so on."""
    return _HIDDEN.sub(_escaped, text)


def put(text: str, stream: TextIO | None) -> None:
    """Print `text`, shown; what the encoding of the stream lacks is escaped too. Where the reader has gone
    (`| head`) or there never was one (None), nothing: the exit status does not hang on it.
    """
    if stream is None:
        return
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        stream.write(shown(text).encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()
    except BrokenPipeError:
        _let_go(stream)


def print_bytes(text: str) -> None:
    """Print `text`, shown, as a line of UTF-8 whatever the encoding of standard output; else as `put`."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.buffer.write(shown(text).encode() + b"\n")
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        _let_go(sys.stdout)


def _let_go(stream: TextIO) -> None:
    """Python writes what is left as it ends; that goes nowhere."""
    with suppress(OSError, ValueError), open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())


def _escaped(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
