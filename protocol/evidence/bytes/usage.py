"""The argument parser of a command."""

import argparse
import sys
from typing import Any

from protocol.evidence.bytes.shown import put
from protocol.evidence.mistakes import OneLine

__all__ = ["parser"]


class Parser(OneLine):
    """An argument parser that escapes control characters in its messages, which repeat what was typed."""

    def _print_message(self, message: str, file: Any = None) -> None:
        put(message, file or sys.stderr, end="")


def parser(typed: str, doc: str | None) -> argparse.ArgumentParser:
    """Return a parser. command: as people type it, "kv-prereg tasks". doc: the help text."""
    return Parser(prog=typed, description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
