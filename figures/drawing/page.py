"""The page of every drawing: its style, its heading and notes, and its output files.

Lengths are inches; (0, 0) is the lower left corner of the page.
"""

import contextlib
import io
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
from matplotlib import style
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from analysis.judgement import recorded_judgement, untrusted_files
from analysis.judgement.untrusted_files import RecordError
from figures.drawing import formatting
from figures.drawing.producer import producer_name
from protocol.formats.refusals import Refusal

INK, PALE, BAND = "#1a1a1a", "#6b6b6b", "#f3f3f1"
FACE = "#ffffff"  # background of every drawing: light even on a dark page
WIDEST = 10.7  # inches: fits landscape A4 and the page of a report in full size
FONT = "DejaVu Sans"
STYLE = {
    "font.family": FONT,
    "font.size": 8.5,
    "svg.fonttype": "path",
    "svg.hashsalt": "kv-prereg",
    "figure.facecolor": FACE,
    "savefig.facecolor": FACE,
    "axes.linewidth": 0.8,
    "text.parse_math": False,  # dollar signs in names are literal
}
MARGIN, LINE = 0.25, 0.165
MAX_PIXELS = 65_000  # of one side of a .png; matplotlib refuses 65,536


class NoVerdict(Refusal, ValueError):
    """Raised if there is no judged result to draw."""


class Sheet(NamedTuple):
    """A page with heading and notes. The body lies between `floor` and `floor` plus its height."""

    figure: Figure
    width: float
    height: float
    floor: float

    def add_axes(self, left: float, bottom: float, width: float, height: float) -> Any:
        """Add axes to the body; `bottom` counts from its floor."""
        corner = left / self.width, (self.floor + bottom) / self.height
        return self.figure.add_axes((*corner, width / self.width, height / self.height))

    def add_text(self, left: float, up: float, text: str, **style: Any) -> None:
        """Draw a text in the body; `up` counts from its floor."""
        self.figure.text(left / self.width, (self.floor + up) / self.height, text, **style)

    def add_legend(self, handles: Sequence[Any], columns: int = 1) -> None:
        """Draw a legend at the floor of the body."""
        corner = MARGIN / self.width, self.floor / self.height
        style: dict[str, Any] = {"loc": "lower left", "borderaxespad": 0, "frameon": False}
        self.figure.legend(handles=handles, ncols=columns, bbox_to_anchor=corner, **style)


def read_judged(folder: Path, witness: str = formatting.WITNESS) -> dict[str, Any]:
    """Return the judgement in FOLDER/verdict.json, with "witness" from `anchors.word` after verification.
    Raises NoVerdict if there is no such folder, verdict or judgement.
    """
    path = Path(folder) / "verdict.json"
    try:
        untrusted_files.refuse_special_files(Path(folder))
        content = untrusted_files.parse_object(untrusted_files.read_bytes(path), str(path))
        return untrusted_files.Fields(str(path), {**content["judged"], "witness": witness})
    except OSError as problem:
        if not Path(folder).is_dir():
            raise NoVerdict(f"{folder}: does not exist; name a folder such as registrations/quickstart") from None
        if isinstance(problem, FileNotFoundError):
            if not (Path(folder) / "protocol.toml").exists():
                raise NoVerdict(f"{folder}: contains no registration; name the folder of one") from None
            raise NoVerdict(f"{folder}: has no verdict; run: kv-prereg confirm {folder}") from None
        raise NoVerdict(f"{path}: {problem.strerror}; run: kv-prereg audit {folder}") from None
    except RecordError as error:
        raise NoVerdict(str(error)) from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise NoVerdict(f"{path}: contains no judgement; run: kv-prereg audit {folder}") from None


def read_supported_judgement(folder: Path) -> dict[str, Any]:
    """Return what `read_judged` does, if lock and records say so too. Raises NoVerdict otherwise."""
    judged = read_judged(folder)
    recorded_judgement.refuse_unsupported_as(NoVerdict, folder)
    return judged


def draw_supported(draw: Callable[[Path], tuple[Path, ...]], folder: Path) -> tuple[Path, ...]:
    """Return draw(folder). Raises NoVerdict for a verdict that the records do not support."""
    read_supported_judgement(folder)
    return draw(folder)


def write_drawings(folder: Path, drawings: Iterable[Sequence[Any]]) -> tuple[Path, ...]:
    """Write each drawing, which is followed by its data, to FOLDER."""
    return tuple(path for drawing, *data in drawings for path in write_drawing(folder, drawing, *data))


def write_drawing(folder: Path, drawing: Callable[..., Figure], *data: Any) -> tuple[Path, Path]:
    """Write drawing(*data) to FOLDER as .svg and .png, named like the function. Each says its producer: the same data
    and producer give the same bytes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    svg, png = (folder / f"{drawing.__name__}.{suffix}" for suffix in ("svg", "png"))
    with _own_style():
        figure = drawing(*data)
        figure.savefig(svg, metadata={"Date": None, "Creator": producer_name()})
        _write_png(figure, png)
    return svg, png


def _write_png(figure: Figure, path: Path) -> None:
    """Write a figure in at most 256 colours, in a third of the bytes that matplotlib takes."""
    buffer, producer = io.BytesIO(), PngInfo()
    unpacked = {"compress_level": 0}  # read back at once
    figure.savefig(buffer, format="png", dpi=_png_resolution(figure), pil_kwargs=unpacked)
    producer.add_text("Software", producer_name())
    with Image.open(buffer) as image:
        reduced = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    reduced.save(path, optimize=True, pnginfo=producer)


def compose_drawing(drawing: Callable[..., Figure], *data: Any) -> Figure:
    """Return drawing(*data) as `write_drawing` makes it, without rendering it."""
    with _own_style():
        return drawing(*data)


@contextlib.contextmanager
def _own_style() -> Iterator[None]:
    with style.context(["default", STYLE]), warnings.catch_warnings():  # ignores the user's matplotlibrc
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # a title may have any character
        yield


def _png_resolution(figure: Figure) -> float:
    """Return the dots per inch of a .png: fewer for a page so tall that its image would have too many rows."""
    return min(200.0, MAX_PIXELS / float(max(figure.get_size_inches())))


def new_sheet(width: float, body: float, title: str, subtitles: Sequence[str], notes: Sequence[str]) -> Sheet:
    """Return a page for a body of this height. Title, subtitles and notes are wrapped, never cut."""
    room = width - 2 * MARGIN
    head = [(line, 12.0, "bold", INK, 0.27) for line in wrap_text(title, room, 12, "bold")]
    for number, text in enumerate(subtitles):
        size, weight, ink = (9.0, "bold", INK) if number == 0 else (8.5, "normal", PALE)
        head += [(line, size, weight, ink, 0.21) for line in wrap_text(text, room, size, weight)]
    foot = [line for note in notes for line in wrap_text(note, room, 7.5)]
    floor = 0.18 + LINE * len(foot)
    height = 0.14 + sum(line[-1] for line in head) + body + floor
    figure = Figure(figsize=(width, height))
    top = height - 0.14
    for text, size, weight, ink, advance in head:
        position = MARGIN / width, top / height
        figure.text(*position, text, va="top", size=size, weight=weight, color=ink)
        top -= advance
    for number, text in enumerate(foot):
        up = (floor - 0.10 - LINE * number) / height
        figure.text(MARGIN / width, up, text, va="top", size=7.5, color=PALE)
    return Sheet(figure, width, height, floor)


def study_status(judged: Mapping[str, Any]) -> str:
    """Return title and verdict of a study: no drawing shows a claim without its verdict."""
    return f"{judged['title']}: {formatting.outcome_text(judged)}"


def format_percent(share: float) -> str:
    """Format a share from 0 to 1 as a percentage with one digit."""
    return f"{100 * share:.1f}"


def heat_colour(share: float) -> Any:
    """Return a colour from a visible tint, so that 0 is not blank, to a blue that ends before black."""
    return matplotlib.colormaps["Blues"](0.06 + 0.86 * share)


def contrasting_ink(colour: Any) -> str:
    """Return dark or white, whichever has more contrast with a background (as in WCAG 2)."""
    parts = [
        channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4 for channel in to_rgb(colour)
    ]
    light = 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]
    dark = 0.0103  # of INK
    return INK if (light + 0.05) / (dark + 0.05) > 1.05 / (light + 0.05) else FACE


@cache  # a table is measured cell by cell, and a note from its first word to each of the next
def text_width(text: str, size: float = 8.5, weight: str = "normal") -> float:
    """Return the printed width of a text."""
    font = FontProperties(family=FONT, size=size, weight=weight)
    width: float = text_to_path.get_text_width_height_descent(text, font, ismath=False)[0]
    return width / 72


def wrap_text(text: str, room: float, size: float = 8.5, weight: str = "normal") -> list[str]:
    """Wrap a text to this many inches; a longer word is not split."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and text_width(longer, size, weight) > room:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines
