"""HTML in which all text is escaped unless it was built by this module: no text from a file becomes markup."""

import base64
import hashlib
import html
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from figures.drawing import producer
from figures.report_page import inline_svg
from figures.report_page.report_style import SCRIPT, STYLE

__all__ = [
    "Html",
    "NumberCell",
    "bullet_list",
    "drawing",
    "element",
    "facts_table",
    "folded_section",
    "page",
    "paragraphs",
    "skip_link",
    "table",
]

MAX_SHORT_NAME = 24  # characters of a name that stays on one line


class Html(str):
    """Markup. Any other string is escaped when it is inserted."""

    __slots__ = ()


class NumberCell(NamedTuple):
    """A cell that is sorted by the first number of its text, which orders a column like `value`; cells
    without a value come last in either direction.
    """

    text: str
    value: float | None

    @classmethod
    def of_count(cls, count: int) -> "NumberCell":
        return cls(str(count), count)


def element(tag: str, *inside: str, **attributes: str) -> Html:
    """Return <tag>inside</tag>. `class_` becomes class and `data_sort` becomes data-sort."""
    named = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{html.escape(value)}"' for name, value in attributes.items()
    )
    return Html(f"<{tag}{named}>{_join(inside)}</{tag}>")


def bullet_list(texts: Iterable[str]) -> Html:
    return element("ul", *(element("li", text) for text in texts))


def paragraphs(*texts: str) -> Html:
    """Return one paragraph for each text; empty ones are left out."""
    return _join(element("p", text) for text in texts if text)


def folded_section(title: str, inside: Html, name: str) -> Html:
    """Return a section that is closed initially; it is printed only while it is open."""
    heading = element("summary", element("h2", title))
    return element("details", heading, inside, id=name, class_="section")


def skip_link(to: str, text: str) -> Html:
    """Return the first link of a page, visible once it has keyboard focus."""
    return element("a", text, class_="skip", href=f"#{to}")


def facts_table(caption: str, pairs: Iterable[tuple[str, str]]) -> Html:
    """Return a table of names and values."""
    rows = [element("tr", element("th", name, scope="row"), element("td", value)) for name, value in pairs]
    inside = element("caption", caption), element("tbody", *rows)
    return _scroll_box(caption, element("table", *inside, class_="facts"))


def table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[str | NumberCell]]) -> Html:
    """Return a table that can be sorted by each column if scripts run. The first cell of a row is its header."""
    assert all(len(row) == len(heads) for row in rows), heads
    numeric = {column for row in rows for column, cell in enumerate(row) if isinstance(cell, NumberCell)}
    head = element("tr", *(_head(name, numeric=column in numeric) for column, name in enumerate(heads)))
    body = [element("tr", *(_cell(cell, first=not column) for column, cell in enumerate(row))) for row in rows]
    inside = element("caption", caption), element("thead", head), element("tbody", *body)
    return _scroll_box(caption, element("table", *inside, class_="sortable"))


def drawing(svg: str, alt: str, caption: str) -> Html:
    """Return a figure with the drawing as an image, in which no script runs, in a scroll box. It has white
    paper in dark mode too: inverted colours would mean something else.
    """
    opening_tag = element("img", alt=alt, **inline_svg.image_size(svg)).removesuffix("></img>")
    image = Html(f'{opening_tag} src="{inline_svg.data_url(inline_svg.compact(svg))}">')
    return element("figure", element("figcaption", caption), _scroll_box(caption, image))


def page(title: Html, *body: str, more: str = "") -> str:
    """Return a whole document that loads nothing and runs only the script that sorts its tables.

    title: an element. more: style rules for this page alone.
    """
    style = STYLE + more
    policy = (
        f"default-src 'none'; img-src data:; style-src 'sha256-{_digest(style)}'; "
        f"script-src 'sha256-{_digest(SCRIPT)}'; base-uri 'none'; form-action 'none'"
    )
    head = [
        Html('<meta charset="utf-8">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html(f'<meta name="generator" content="{html.escape(producer.producer_name())}">'),
        title,
        Html(f"<style>{style}</style>"),
    ]
    script = Html(f"<script>{SCRIPT}</script>")
    document = element("html", element("head", *head), element("body", *body, script), lang="en")
    return f"<!DOCTYPE html>\n{document}\n"


def _join(texts: Iterable[str]) -> Html:
    return Html("".join(text if isinstance(text, Html) else html.escape(text) for text in texts))


def _head(name: str, *, numeric: bool) -> Html:
    return element("th", name, scope="col", **({"class_": "n"} if numeric else {}))


def _cell(cell: str | NumberCell, *, first: bool) -> Html:
    if isinstance(cell, NumberCell):
        sort_attributes = {"data_sort": ""} if cell.value is None and cell.text else {}
        return element("td", cell.text, class_="n", **sort_attributes)
    name_attributes = {"class_": "long"} if len(cell) > MAX_SHORT_NAME else {}
    return element("th", cell, scope="row", **name_attributes) if first else element("td", cell, **name_attributes)


def _scroll_box(name: str, inside: Html) -> Html:
    """Return a box that scrolls, by keyboard too, if the page is narrower than its content."""
    return element("div", inside, class_="scroll", role="region", aria_label=name, tabindex="0")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
