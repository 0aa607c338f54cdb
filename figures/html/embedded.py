"""Embed a drawing in a page: the same picture in fewer bytes, as an image in which no script runs."""

import re
from urllib.parse import quote

__all__ = ["address", "compact", "size"]

# Removed, since it is not drawn: matplotlib's drawings begin with a prolog and metadata.
_ASIDE = re.compile(r"<\?xml.*?\?>|<!DOCTYPE.*?>|<!--.*?-->|<metadata>.*?</metadata>", re.DOTALL)
_DIGITS = re.compile(r"-?[0-9]+\.[0-9]{3,}")
_NAME = re.compile(r' id="([^"]*)"')
_GLYPH = re.compile(r'transform="translate\(([-0-9.]+) 0\)"/>')  # offset of a glyph within its line
_STYLE = re.compile(r'(?<= style=")[^"]*')
_PATH, _COMMAND = re.compile(r'(?<= d=")[^"]*'), re.compile(r" ?([A-Za-z]) ?")
_CITED = re.compile(r'(?<=href="#)[^"]+|(?<=url\(#)[^)]+')
_SIZE = re.compile(r'<svg [^>]*\bwidth="([0-9.]+)pt" height="([0-9.]+)pt"')
# Characters that need no encoding in a data URL within a double-quoted attribute of HTML.
_PLAIN = " !$'()*+,-./:;<=>?@[]^_`{|}~"


def compact(svg: str) -> str:
    """Return the same drawing with numbers of four digits (a tenth of a point on a page of 999), short names
    for cited ids and no others, and no line ends. Anything that matplotlib does not write is unchanged.
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
    """Return a data URL. Attributes get single quotes, which need no encoding there, if the drawing has no
    others.
    """
    told = svg if "'" in svg else svg.replace('"', "'")
    return f"data:image/svg+xml,{quote(told, safe=_PLAIN)}"


def size(svg: str) -> dict[str, str]:
    """Return width and height as attributes of an image, in CSS pixels; empty if the drawing has none."""
    found = _SIZE.search(svg)
    if not found:
        return {}
    width, height = (f"{float(length) * 4 / 3:.0f}" for length in found.groups())
    return {"width": width, "height": height}


def _short(number: str) -> str:
    value = float(number)
    told = f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return "0" if "e" in told else told
