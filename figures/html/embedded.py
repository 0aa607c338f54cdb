"""A drawing within a page: the same picture in fewer bytes, as an image in which no script of it runs."""

import re
from urllib.parse import quote

__all__ = ["address", "compact", "size"]

# Dropped: what no picture is made of. A drawing of matplotlib begins with a prolog and its metadata.
_ASIDE = re.compile(r"<\?xml.*?\?>|<!DOCTYPE.*?>|<!--.*?-->|<metadata>.*?</metadata>", re.DOTALL)
_DIGITS = re.compile(r"-?[0-9]+\.[0-9]{3,}")
_NAME = re.compile(r' id="([^"]*)"')
_GLYPH = re.compile(r'transform="translate\(([-0-9.]+) 0\)"/>')  # of a letter within its line
_STYLE = re.compile(r'(?<= style=")[^"]*')
_PATH, _COMMAND = re.compile(r'(?<= d=")[^"]*'), re.compile(r" ?([A-Za-z]) ?")
_CITED = re.compile(r'(?<=href="#)[^"]+|(?<=url\(#)[^)]+')
_SIZE = re.compile(r'<svg [^>]*\bwidth="([0-9.]+)pt" height="([0-9.]+)pt"')
# What need not be encoded in a data address within a double-quoted attribute of HTML.
_PLAIN = " !$'()*+,-./:;<=>?@[]^_`{|}~"


def compact(svg: str) -> str:
    """The same drawing: numbers with four digits (a tenth of a point on a page of 999), short names for what
    it cites itself and none for the rest, no line ends. What matplotlib does not write is kept as it is.
    """
    told = " ".join(_ASIDE.sub("", svg).split())
    told = _DIGITS.sub(lambda found: _short(found[0]), told).replace("> <", "><")
    names = {name: f"n{place}" for place, name in enumerate(dict.fromkeys(_CITED.findall(told)))}
    told = _NAME.sub(lambda found: f' id="{names[found[1]]}"' if found[1] in names else "", told)
    told = _CITED.sub(lambda found: names[found[0]], told).replace(" xlink:href=", " href=")
    told = _GLYPH.sub(lambda found: f'x="{float(found[1]):.0f}"/>', told)
    told = _STYLE.sub(lambda found: found[0].replace(": ", ":").replace("; ", ";"), told)
    return _PATH.sub(lambda found: _COMMAND.sub(r"\1", found[0]), told)


def address(svg: str) -> str:
    """As a data address. Its attributes get single quotes, which cost nothing there, if it has no other."""
    told = svg if "'" in svg else svg.replace('"', "'")
    return f"data:image/svg+xml,{quote(told, safe=_PLAIN)}"


def size(svg: str) -> dict[str, str]:
    """Width and height as attributes of an image, in CSS pixels; none where the drawing does not say."""
    found = _SIZE.search(svg)
    if not found:
        return {}
    width, height = (f"{float(length) * 4 / 3:.0f}" for length in found.groups())
    return {"width": width, "height": height}


def _short(number: str) -> str:
    value = float(number)
    told = f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return "0" if "e" in told else told
