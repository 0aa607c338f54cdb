"""How a test looks at a drawing: its artists by gid, its texts, and whether they lie on the page."""

from collections.abc import Callable
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from figures.drawing import page


def drawn(drawing: Callable[..., Figure], *data: Any) -> Figure:
    """Laid out in the style and the resolution in which it is written; no text is off the page or on another one."""
    with matplotlib.rc_context(page.STYLE):
        figure = drawing(*data)
        figure.set_dpi(200)
        FigureCanvasAgg(figure)  # which measures texts
        figure.draw_without_rendering()
    assert off_the_page(figure) == [], drawing.__name__
    assert overlapping(figure) == [], drawing.__name__
    return figure


def by_gid(figure: Figure) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for artist in figure.findobj():
        if artist.get_gid() is not None:
            found.setdefault(artist.get_gid(), []).append(artist)
    return found


def texts(figure: Figure) -> list[Text]:
    """Those that are seen: the label of a tick beyond its axis is not."""
    unseen = set()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            for tick in axis.get_major_ticks():
                if not axes.axison or not low <= tick.get_loc() <= high:
                    unseen |= {tick.label1, tick.label2}
    return [text for text in figure.findobj(Text) if text.get_text() and text not in unseen]


def said(figure: Figure) -> str:
    """Every text, lines joined: the words survive whatever the wrapping."""
    return " ".join(text.get_text() for text in texts(figure))


def off_the_page(figure: Figure) -> list[str]:
    page_box = figure.bbox
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts(figure)]
    return [
        text
        for text, box in boxes
        if box.x0 < page_box.x0 or box.x1 > page_box.x1 or box.y0 < page_box.y0 or box.y1 > page_box.y1
    ]


def overlapping(figure: Figure) -> list[tuple[str, str]]:
    """Pairs of texts whose boxes share more than a pixel each way."""
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts(figure)]
    return [
        (one, other)
        for i, (one, a) in enumerate(boxes)
        for other, b in boxes[:i]
        if min(a.x1, b.x1) - max(a.x0, b.x0) > 1 and min(a.y1, b.y1) - max(a.y0, b.y0) > 1
    ]
