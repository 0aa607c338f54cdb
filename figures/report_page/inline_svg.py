"""Embed a drawing in a page: the same picture in fewer bytes, as an image in which no script runs."""

import re
from urllib.parse import quote

# Removed, since it is not drawn: matplotlib's drawings begin with a prolog and metadata.
_METADATA = re.compile(r"<\?xml.*?\?>|<!DOCTYPE.*?>|<!--.*?-->|<metadata>.*?</metadata>", re.DOTALL)
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
    text = " ".join(_METADATA.sub("", svg).split())
    text = _DIGITS.sub(lambda match: _shorten_number(match[0]), text).replace("> <", "><")
    names = {name: f"n{index}" for index, name in enumerate(dict.fromkeys(_CITED.findall(text)))}
    text = _NAME.sub(lambda match: f' id="{names[match[1]]}"' if match[1] in names else "", text)
    text = _CITED.sub(lambda match: names[match[0]], text).replace(" xlink:href=", " href=")
    text = _GLYPH.sub(lambda match: f'x="{float(match[1]):.0f}"/>', text)
    text = _STYLE.sub(lambda match: match[0].replace(": ", ":").replace("; ", ";"), text)
    return _PATH.sub(lambda match: _COMMAND.sub(r"\1", match[0]), text)


def data_url(svg: str) -> str:
    """Return a data URL. Attributes get single quotes, which need no encoding there, if the drawing has no others."""
    text = svg if "'" in svg else svg.replace('"', "'")
    return f"data:image/svg+xml,{quote(text, safe=_PLAIN)}"


def image_size(svg: str) -> dict[str, str]:
    """Return width and height as attributes of an image, in CSS pixels; empty if the drawing has none."""
    match = _SIZE.search(svg)
    if not match:
        return {}
    width, height = (f"{float(length) * 4 / 3:.0f}" for length in match.groups())
    return {"width": width, "height": height}


def _shorten_number(number: str) -> str:
    value = float(number)
    text = f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return "0" if "e" in text else text
