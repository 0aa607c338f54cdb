"""What all commands share: options, one-line refusals and exit statuses.

May import: analysis.output, protocol.texts, protocol.witnesses, protocol.evidence.
"""

from protocol.command.answering import STATUS, answer, say, tell
from protocol.command.options import Options, Trust, folder, identity, parser, trust, trusted

__all__ = [
    "STATUS",
    "Options",
    "Trust",
    "answer",
    "folder",
    "identity",
    "parser",
    "say",
    "tell",
    "trust",
    "trusted",
]
