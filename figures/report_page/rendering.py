"""Pages of HTML from the templates beside this file: all text is escaped but what a template made."""

import base64
import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from analysis.rules import judged_numbers
from figures.drawing import producer
from figures.report_page import inline_svg
from protocol.formats.escape import escape_control

MAX_SHORT_NAME = 24  # characters of a name that stays on one line


class NumberCell(NamedTuple):
    """A cell that is sorted by the first number of its text, which orders a column like `value`; cells
    without a value come last in either direction.
    """

    text: str
    value: float | None

    @classmethod
    def of_count(cls, count: int) -> "NumberCell":
        return cls(str(count), count)


Cell = str | NumberCell
NO_NUMBER = NumberCell("", None)


def decimal_cell(value: Any, digits: int) -> NumberCell:
    return NO_NUMBER if value is None else NumberCell(f"{float(value):,.{digits}f}", float(value))


def percent_cell(value: Any) -> NumberCell:
    return NO_NUMBER if value is None else NumberCell(f"{100 * float(value):.1f}", float(value))


def format_value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def render(template: str, **values: Any) -> Markup:
    """Return the filled template; text among `values` is escaped in it. A value that a template names and
    nobody gives is an error.
    """
    return Markup(TEMPLATES.get_template(template).render(values))


def table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[Cell]]) -> Markup:
    """Return a table whose columns with numbers are aligned and sorted as numbers."""
    assert all(len(row) == len(heads) for row in rows), heads
    numeric = {column for row in rows for column, cell in enumerate(row) if isinstance(cell, NumberCell)}
    macros: Any = TEMPLATES.get_template("macros.html").module
    return Markup(macros.table(caption, heads, rows, numeric, MAX_SHORT_NAME))


def drawing(svg: str, alt: str, caption: str) -> Markup:
    """Return a figure with the drawing as an image."""
    macros: Any = TEMPLATES.get_template("macros.html").module
    image = {"alt": alt, "caption": caption, "size": inline_svg.image_size(svg)}
    return Markup(macros.drawing(image | {"url": Markup(inline_svg.data_url(inline_svg.compact(svg)))}))


def write_atomically(path: Path, text: str) -> Path:
    new = path.with_name(f"{path.name}.new")
    new.write_text(text, "utf-8", newline="\n")
    os.replace(new, path)
    return path


def _digest(text: str) -> str:
    """Return the digest of a style or script, by which the policy of a page admits it."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


TEMPLATES = Environment(
    loader=FileSystemLoader((Path(__file__).with_name("templates"), Path(__file__).parents[2])),  # and of instruments
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.globals |= {"digest": _digest, "producer_name": producer.producer_name}
TEMPLATES.filters |= {"level": judged_numbers.format_level, "value": format_value, "visible": escape_control}
