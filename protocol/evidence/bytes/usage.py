"""The parser of a command's words."""

import argparse
import sys
from typing import Any

from protocol.evidence.bytes.shown import put

__all__ = ["parser"]


class Parser(argparse.ArgumentParser):
    """Its messages repeat what was typed, or what a pattern of the shell found, and are shown as all text."""

    def _print_message(self, message: str, file: Any = None) -> None:
        put(message, file or sys.stderr, end="")


def parser(typed: str, doc: str | None) -> argparse.ArgumentParser:
    """typed: as people type the command, "kv-prereg tasks". doc: its help."""
    return Parser(prog=typed, description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
