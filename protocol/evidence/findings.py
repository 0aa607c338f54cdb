"""What a check of evidence comes to: held, failed (by raising `Tampered`), cannot be told, or not run."""

from typing import Literal, NamedTuple


class Finding(NamedTuple):
    """What an audit says of one item."""

    item: str
    status: Literal["held", "failed", "cannot tell", "not run"]
    detail: str


class CannotTell(Exception):
    """The evidence neither holds nor fails: it is not whole yet, or this machine cannot check it."""


class NotRun(Exception):
    """A step of which, and of whose successors, there is no trace."""
