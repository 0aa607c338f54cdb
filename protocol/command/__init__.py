"""What all commands share: options, one-line refusals and exit statuses.

May import: protocol.formats, protocol.evidence, protocol.witnesses.
"""

from protocol.command.options import (
    Options,
    Trust,
    add_folder,
    add_identity,
    add_trust,
    make_parser,
    make_witnesses,
    read_folder,
    trusted_witnesses,
)
from protocol.command.reporting import EXIT_STATUS, execute, print_notice, print_result, run

__all__ = [
    "EXIT_STATUS",
    "Options",
    "Trust",
    "add_folder",
    "add_identity",
    "add_trust",
    "execute",
    "make_parser",
    "make_witnesses",
    "print_notice",
    "print_result",
    "read_folder",
    "run",
    "trusted_witnesses",
]
