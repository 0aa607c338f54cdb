"""What a check of evidence comes to: held, failed (by raising `Tampered`), unfinished, untold or not run."""

from typing import Literal, NamedTuple


class Finding(NamedTuple):
    """What an audit says of one item."""

    item: str
    status: Literal["held", "failed", "unfinished", "cannot tell", "not run"]
    detail: str


class CannotTell(Exception):
    """The evidence neither holds nor fails: this machine cannot check it."""


class Unfinished(Exception):
    """The study is on its way: what is there holds, and more is to come."""


class NotRun(Exception):
    """A step of which, and of whose successors, there is no trace."""
