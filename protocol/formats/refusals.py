"""Exceptions for what the protocol refuses, and the exit status that each gives a command.

    Refusal             2
    ├── BadInput        2   unknown name, malformed file, budget below the protected set, empty split
    ├── Drifted         3   today's bytes differ from the lock: code, data, weights, environment, split
    ├── Tampered        3   evidence does not verify
    ├── AlreadyClaimed  4   a second confirmation, or one is going on
    └── Unanchored      5   an outside witness was asked for and there is none

The message is one line that names the field and the fix. A refusal has written nothing.
"""

# What a document of the wrong shape raises where nobody checked it. A fault of a program may look the same.
SHAPE_ERRORS = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)


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
