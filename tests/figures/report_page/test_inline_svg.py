"""A drawing in fewer bytes is the same drawing."""

import re
import xml.etree.ElementTree as ElementTree
from urllib.parse import unquote

import pytest

from figures.report_page import inline_svg

SVG = """<?xml version="1.0" encoding="utf-8" standalone="no"?>
<!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN"
  "http://www.w3.org/Graphics/SVG/1.1/DTD/svg11.dtd">
<svg xmlns:xlink="http://www.w3.org/1999/xlink" width="72.0pt" height="36.5pt" xmlns="http://www.w3.org/2000/svg">
 <metadata>who made it</metadata>
 <defs><path id="DejaVuSans-41" d="M 2188 4044 L 1331 1722 z"/></defs>
 <g id="figure_1"><!-- a word -->
  <path d="M 62.6412345 249.12 L 356.993047 0.0000012 z" style="fill: #ffffff; stroke: none"/>
  <use xlink:href="#DejaVuSans-41" transform="translate(68.408203 0)"/>
  <g clip-path="url(#p1)"/><clipPath id="p1"/>
 </g>
</svg>
"""
SMALL = (
    '<svg xmlns:xlink="http://www.w3.org/1999/xlink" width="72.0pt" height="36.5pt" '
    'xmlns="http://www.w3.org/2000/svg"><defs><path id="n0" d="M2188 4044L1331 1722z"/></defs><g>'
    '<path d="M62.64 249.12L357 0z" style="fill:#ffffff;stroke:none"/><use href="#n0" x="68"/>'
    '<g clip-path="url(#n1)"/><clipPath id="n1"/></g></svg>'
)


def test_a_small_drawing_is_written_as_by_hand():
    assert inline_svg.compact(SVG) == SMALL
    assert inline_svg.compact(SMALL) == SMALL
    assert inline_svg.image_size(SVG) == {"width": "96", "height": "49"}
    assert inline_svg.image_size("<svg></svg>") == {}


def test_an_address_holds_the_drawing_and_ends_no_attribute():
    address = inline_svg.data_url(SMALL)
    assert unquote(address.removeprefix("data:image/svg+xml,")) == SMALL.replace('"', "'")
    assert not set('"&#\n') & set(address)
    hostile = """<svg a='1'>" onerror="alert(1)&amp;#</svg>"""
    assert not set('"&#') & set(inline_svg.data_url(hostile))
    assert unquote(inline_svg.data_url(hostile).removeprefix("data:image/svg+xml,")) == hostile


@pytest.mark.parametrize("name", ["accuracy", "budget_curve", "needle"])
def test_every_number_of_a_drawing_stays_within_a_twentieth_of_a_point(quickstart, name):
    before = (quickstart / "figures" / f"{name}.svg").read_text()
    after = inline_svg.compact(before)
    assert len(after) < 0.7 * len(before)
    old, new = (
        [one for one in ElementTree.fromstring(text).iter() if one.tag.endswith("}path")] for text in (before, after)
    )
    assert len(old) == len(new) > 50
    for one, two in zip(old, new, strict=True):
        was, now = ([float(part) for part in re.findall(r"-?[0-9.]+", each.get("d") or "")] for each in (one, two))
        assert now == pytest.approx(was, abs=0.0501)
