"""The terminal that reads standard output: its width, wrapped lines and tables, verdicts in bold and colour.

Output that is no terminal gets lines of 110 columns and no style, so that files and pipes are alike everywhere.
"""

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from types import MappingProxyType
from typing import TextIO

from protocol.formats.vocabulary import VERDICT_WORDS

PIPE_WIDTH, NARROWEST, WIDEST = 110, 60, 160  # columns
GAP = 2  # columns between two cells
GREEN, RED, YELLOW = "1;32", "1;31", "1;33"
STYLES = MappingProxyType(dict.fromkeys(VERDICT_WORDS, YELLOW) | {"CONFIRMED": GREEN, "REFUTED": RED, "INVALID": RED})
VERDICTS = re.compile(rf"(?<![\w-])({'|'.join(STYLES)})(?![\w-])( \(UNWITNESSED\))?")


def line_width() -> int:
    """Return the columns of a line: as many as the terminal has, from 60 to 160."""
    if is_piped():
        return PIPE_WIDTH
    return min(max(shutil.get_terminal_size((PIPE_WIDTH, 24)).columns, NARROWEST), WIDEST)


def is_piped() -> bool:
    """Return whether standard output is a file or a pipe, where a row of a table may be wider than a line of text."""
    return not _is_terminal(sys.stdout)


def wrap_text(text: str, width: int | None = None, first: str = "", later: str = "") -> list[str]:
    """Wrap a text between words; a longer word, such as a path, is not broken. first, later: what lines begin with."""
    return textwrap.wrap(
        text,
        line_width() if width is None else width,
        initial_indent=first,
        subsequent_indent=later,
        break_long_words=False,
        break_on_hyphens=False,
    )


def shrink_columns(cells: Sequence[Sequence[str]], width: int) -> list[int]:
    """Return the width of each column: the widest shrink, down to their longest word, until a row has `width`."""
    columns = list(zip(*cells, strict=True))
    widths = [max(map(len, column)) for column in columns]
    least = [max((len(word) for cell in column for word in cell.split()), default=0) for column in columns]
    while sum(widths) + GAP * (len(widths) - 1) > width:
        loose = [place for place in range(len(widths)) if widths[place] > least[place]]
        if not loose:
            break
        widths[max(loose, key=widths.__getitem__)] -= 1
    return widths


def supports_colour(stream: TextIO | None) -> bool:
    """Return whether a stream is a terminal with styles and colours are not disabled (no-color.org)."""
    return _is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def style_verdicts(text: str) -> str:
    """Return text with its verdicts in bold and colour; one that no witness supports is not green."""
    return VERDICTS.sub(lambda match: f"\x1b[{YELLOW if match[2] else STYLES[match[1]]}m{match[0]}\x1b[0m", text)


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False
