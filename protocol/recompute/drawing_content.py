"""Compare two drawings, or two reports, by what they show: text, shapes and pixels, and not by their bytes.

Another processor or library may move a line by a fraction of a point. That is no edit.
"""

import io
import itertools
import math
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from urllib.parse import unquote

Token = str | float  # text; a coordinate
GEOMETRY = frozenset({"d", "height", "points", "transform", "viewbox", "width", "x", "y"})  # attributes in points
REFERENCES = frozenset({"clip-path", "href", "id", "xlink:href"})  # matplotlib derives names from coordinates
SVG_URL = "data:image/svg+xml,"
NAME = re.compile(r"url\(#([^)]+)\)|#?(.+)")
NUMBER = re.compile(r"([-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?)")
PRODUCER = re.compile(r"kv-prereg figures [0-9a-f]{64}, [^\"<]*")
POINTS = 0.02  # by which a coordinate may differ, or by a thousandth of it
BLOCK, GREY = 8, 32  # pixels of the side of a block; levels of 255 by which its mean may differ


def have_same_content(data: bytes, redrawn: bytes) -> bool:
    """Return whether both are pictures (.png) or marked-up text (.svg, .html) that show the same."""
    if data == redrawn:
        return True
    if redrawn.startswith(b"\x89PNG"):
        return _have_same_pixels(data, redrawn)
    try:
        pages = [_Content(PRODUCER.sub("", content.decode("utf-8"))).tokens for content in (data, redrawn)]
    except UnicodeDecodeError:
        return False
    return all(_are_close(token, other) for token, other in itertools.zip_longest(*pages))


class _Content(HTMLParser):
    """The tokens of a page. Names of shapes are numbered in the order in which they occur."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=False)
        self.tokens: list[Token] = []
        self.numbers: dict[str, int] = {}
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tokens.append(f"<{tag}")
        for name, value in attributes:
            self.tokens.append(name)
            self.tokens += self._read_value(name, value or "")

    def _read_value(self, name: str, value: str) -> Iterator[Token]:
        if name in REFERENCES and (match := NAME.fullmatch(value)):
            yield f"name {self.numbers.setdefault(match[1] or match[2], len(self.numbers))}"
        elif value.startswith(SVG_URL):
            yield from _Content(unquote(value.removeprefix(SVG_URL))).tokens
        elif name in GEOMETRY:
            for number, part in enumerate(NUMBER.split(value)):
                yield float(part) if number % 2 else part
        else:
            yield value

    def handle_endtag(self, tag: str) -> None:
        self.tokens.append(f"</{tag}")

    def handle_data(self, data: str) -> None:
        self.tokens.append(data)

    def handle_comment(self, data: str) -> None:  # matplotlib writes the text of each line of glyphs
        self.tokens.append(f"<!--{data}")

    def handle_decl(self, decl: str) -> None:
        self.tokens.append(f"<!{decl}")

    def handle_pi(self, data: str) -> None:
        self.tokens.append(f"<?{data}")

    def unknown_decl(self, data: str) -> None:
        self.tokens.append(f"<![{data}")

    def handle_entityref(self, name: str) -> None:
        self.tokens.append(f"&{name};")

    def handle_charref(self, name: str) -> None:
        self.tokens.append(f"&#{name};")


def _are_close(token: Token | None, other: Token | None) -> bool:
    if isinstance(token, float) and isinstance(other, float):
        return math.isclose(token, other, rel_tol=0.001, abs_tol=POINTS)
    return token == other


def _have_same_pixels(data: bytes, redrawn: bytes) -> bool:
    """Return whether two pictures have one size and no block of pixels whose mean colour clearly differs."""
    from PIL import Image, ImageChops  # a library of matplotlib's

    try:
        pictures = [Image.open(io.BytesIO(content)).convert("RGBA") for content in (data, redrawn)]
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):  # SyntaxError: a broken .png
        return False
    if pictures[0].size != pictures[1].size:
        return False
    blocks = [picture.reduce(BLOCK) for picture in pictures]
    return max(ImageChops.difference(*blocks).tobytes()) <= GREY
