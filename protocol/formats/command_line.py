"""The argument parser of a command."""

import argparse
import sys
from typing import Any

from protocol.formats.escape import print_escaped
from protocol.formats.suggestions import OneLineParser

__all__ = ["make_parser"]


class Parser(OneLineParser):
    """An argument parser that escapes control characters in its messages, which repeat what was typed."""

    def _print_message(self, message: str, file: Any = None) -> None:
        print_escaped(message, file or sys.stderr, end="")


def make_parser(command: str, doc: str | None) -> argparse.ArgumentParser:
    """Return a parser. command: as people type it, "kv-prereg tasks". doc: the help text."""
    return Parser(prog=command, description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
