"""What the protocol refuses, and the exit status that each refusal gives a command.

    Refusal             2
    ├── BadInput        2   unknown name, malformed file, budget below the protected set, empty split
    ├── Drifted         3   today's bytes differ from the lock: code, data, weights, environment, split
    ├── Tampered        3   evidence does not verify
    ├── AlreadyClaimed  4   a second confirmation, or one is going on
    └── Unanchored      5   an outside witness was asked for and there is none

The message is one line that names the field and the fix. A refusal has written nothing.
"""

from collections.abc import Iterable
from difflib import get_close_matches

NEAR = 0.7  # of difflib, from which a name is a hint; gpu and cpu have two thirds
MOST_NAMES = 12  # that a refusal lists whole


class Refusal(Exception):
    """The protocol will not go on; the message says why and what to do, in one line."""

    exit_status = 2


class BadInput(Refusal):
    """What a person wrote or asked for cannot be used."""


class Drifted(Refusal):
    """Bytes on this machine differ from the bytes that were locked."""

    exit_status = 3


class Tampered(Refusal):
    """Evidence on disk does not verify."""

    exit_status = 3


class AlreadyClaimed(Refusal):
    """The registration is being confirmed or was confirmed; that happens once."""

    exit_status = 4


class Unanchored(Refusal):
    """No outside witness vouches for the order of events, and one was required."""

    exit_status = 5


def hint(name: str, names: Iterable[str], listing: str = "") -> str:
    """What to write instead of `name`: the name nearest to it or, where none is near, what there is.

    listing: the command that prints all names, for where they are many.
    """
    known = list(names)
    if near := get_close_matches(name, known, n=1, cutoff=NEAR):
        return f"did you mean {near[0]!r}?"
    if not known:
        return "none is defined"
    if len(known) <= MOST_NAMES or not listing:
        return f"write {known[0]}" if len(known) == 1 else f"write one of {', '.join(known)}"
    return f"write one of {', '.join(known[:3])}, ...; {listing} lists all {len(known)}"


def unknown(kind: str, name: str, names: Iterable[str], listing: str = "") -> str:
    return f"unknown {kind} {name!r}; {hint(name, names, listing)}"
