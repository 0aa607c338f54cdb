"""How a test reads a page: its elements in order, each with its attributes and its text."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"img", "meta"}


@dataclass
class Element:
    tag: str
    attributes: dict[str, str]
    inside: list["Element"] = field(default_factory=list)
    text: str = ""  # with that of what is inside

    def all(self, tag: str) -> list["Element"]:
        below = [found for one in self.inside for found in one.all(tag)]
        return [self, *below] if self.tag == tag else below


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("document", {})
        self.open = [self.root]

    def handle_starttag(self, tag, attrs):
        assert len({name for name, _ in attrs}) == len(attrs), (tag, attrs)
        one = Element(tag, dict(attrs))
        self.open[-1].inside.append(one)
        if tag not in VOID:
            self.open.append(one)

    def handle_endtag(self, tag):
        closed = self.open.pop()
        assert closed.tag == tag, f"<{closed.tag}> is closed by </{tag}>"

    def handle_data(self, data):
        for one in self.open:
            one.text += data


def parsed(html: str) -> Element:
    """The document; every element has to be closed in its place."""
    parser = _Parser()
    parser.feed(html)
    parser.close()
    assert parser.open == [parser.root]
    return parser.root


def table(document: Element, caption: str) -> list[dict[str, str]]:
    """The rows of the one table whose caption begins so, by head."""
    (found,) = [one for one in document.all("table") if one.all("caption")[0].text.startswith(caption)]
    heads = [one.text for one in found.all("thead")[0].all("th")]
    rows = found.all("tbody")[0].all("tr")
    return [dict(zip(heads, [cell.text for cell in row.inside], strict=True)) for row in rows]
