"""Drawings and the report are no evidence: on request they are made again, and compared."""

import io
import re
import shutil

import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from protocol.evidence.registration import Registration
from protocol.formats.findings import CannotTell, NotRun
from protocol.formats.refusals import Tampered
from protocol.recompute import verify_drawings


@pytest.fixture(scope="module")
def redrawn(confirmed, tmp_path_factory):
    """Drawn again in a folder of another name; the study is drawn once for all tests."""
    folder = shutil.copytree(confirmed, tmp_path_factory.mktemp("elsewhere") / "moved")
    again = tmp_path_factory.mktemp("again")
    return folder, again, verify_drawings._draw(folder, again)


@pytest.fixture
def folder(redrawn, tmp_path, monkeypatch):
    original, again, name = redrawn
    monkeypatch.setattr(verify_drawings, "_draw", lambda _, to: shutil.copytree(again, to, dirs_exist_ok=True) and name)
    return shutil.copytree(original, tmp_path / "study")


def check(folder):
    return verify_drawings.check(Registration(folder))


def test_what_was_drawn_is_drawn_alike_again_wherever_the_folder_lies(folder):
    drawn = [folder / "report.html", *(folder / "figures").iterdir()]
    assert len(drawn) > 4
    assert check(folder) == f"{len(drawn)} files redrawn from the records with the same bytes"


def test_a_part_of_the_drawings_is_compared_alone(folder):
    shutil.rmtree(folder / "figures")
    assert check(folder).startswith("1 file redrawn")


def edit(path, change):
    data = path.read_bytes()
    changed = change(data)
    assert changed != data
    path.write_bytes(changed)


def substitute(pattern, change, count=1):
    """An edit of the first matches in a text."""
    return lambda data: re.sub(pattern, change, data.decode(), count=count).encode()


def repaint(change):
    """An edit of a picture's pixels that keeps the name of its producer."""

    def edited(data):
        picture = Image.open(io.BytesIO(data))
        information, saved = PngInfo(), io.BytesIO()
        information.add_text("Software", picture.info["Software"])
        change(picture.convert("RGB")).save(saved, "png", pnginfo=information)
        return saved.getvalue()

    return edited


def cover(picture):
    """A mark of 8 by 8 pixels (a millimetre) that covers no whole block of the comparison."""
    picture.paste((200, 30, 30), (301, 301, 309, 309))
    return picture


def move(distance):
    """A picture moved to the right by a part of a pixel."""
    return lambda picture: picture.transform(picture.size, Image.Transform.AFFINE, (1, 0, -distance, 0, 1, 0), 2)


def stretch(match):
    return f"{float(match[0]) * 1.00001:.6f}"


EDITS = [
    ("report.html", substitute(r"\d+ problems", "999 problems")),
    ("report.html", substitute(r"translate\(\d+", r"\g<0>3")),
    ("figures/forest.svg", substitute(r"<!-- [^>]*\d\.\d", lambda match: match[0][:-1] + "x")),
    ("figures/forest.svg", substitute(r'<use xlink:href="#m\w+" x="', r"\g<0>9")),
    ("figures/forest.svg", substitute(r'(#DejaVuSans-\w+)("[^#]*)(#DejaVuSans-\w+)', r"\3\2\1")),
    ("figures/forest.svg", substitute(r"fill: #\w+", "fill: #00ff00")),
    ("figures/forest.png", repaint(cover)),
    ("figures/accuracy.png", repaint(lambda picture: picture.crop((0, 0, picture.width - 1, picture.height)))),
]
RENDERINGS = [
    ("figures/forest.svg", substitute(r"\d+\.\d{5,}", stretch, count=0)),
    ("figures/forest.svg", substitute(r"\bm[0-9a-f]{10}\b", lambda match: match[0][::-1], count=0)),
    ("figures/forest.png", repaint(move(0.3))),
    ("figures/forest.png", repaint(lambda picture: picture.point(lambda level: min(255, level + 1)))),
]


@pytest.mark.parametrize(("name", "change"), EDITS)
def test_a_file_that_shows_something_else_is_named_where_what_is_here_drew_it(folder, name, change):
    edit(folder / name, change)
    with pytest.raises(
        Tampered,
        match=f"^{name}: differs from what is drawn here by the code that the file names; to redraw: kv-prereg",
    ):
        check(folder)


@pytest.mark.parametrize(("name", "change"), RENDERINGS)
def test_another_rendering_is_the_same_content(folder, name, change):
    edit(folder / name, change)
    assert check(folder).endswith(f"redrawn from the records with the same content; only the bytes differ: {name}")


def test_what_another_library_rendered_is_no_other_content(folder):
    """Every file names another producer, and shows the same."""
    drawn = [folder / "report.html", *(folder / "figures").glob("*.svg")]
    for path in drawn:
        edit(path, substitute(r"freetype [\d.]+", "freetype 1.0", count=0))
    assert "the same content; only the bytes differ: figures/" in check(folder)


def test_two_drawings_that_were_exchanged_are_named(folder):
    one, other = folder / "figures" / "forest.png", folder / "figures" / "accuracy.png"
    data = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(data)
    with pytest.raises(
        Tampered, match=r"^figures/accuracy.png, figures/forest.png: differs from what is drawn here by the code"
    ):
        check(folder)


@pytest.mark.parametrize("data", [b"", b"\x89PNG", b"\x89PNG\r\n\x1a\n" + b"\xff" * 40, b"<svg/>"])
@pytest.mark.parametrize("name", ["figures/trajectories.png", "figures/forest.png", "figures/forest.svg"])
def test_a_drawing_that_names_no_producer_cannot_be_compared(folder, name, data):
    (folder / name).write_bytes(data)
    with pytest.raises(CannotTell, match=f"^{name}: differs from what is drawn here from the records"):
        check(folder)


@pytest.mark.parametrize(("name", "change"), EDITS)
def test_what_other_code_drew_cannot_be_compared(folder, name, change):
    """A page that this code drew beside it accuses no drawing of another code."""
    edit(folder / name, change)
    other_code = (
        repaint_software if name.endswith(".png") else substitute("kv-prereg figures ..", "kv-prereg figures 00")
    )
    edit(folder / name, other_code)
    with pytest.raises(CannotTell, match="edited, or drawn by other code or libraries; to redraw: kv-prereg rep"):
        check(folder)


def repaint_software(data):
    saved = io.BytesIO()
    Image.open(io.BytesIO(data)).save(saved, "png")  # without the name of its producer
    return saved.getvalue()


def test_nothing_drawn_is_nothing_to_compare(folder):
    shutil.rmtree(folder / "figures")
    (folder / "report.html").unlink()
    with pytest.raises(NotRun, match=r"there are no drawings yet; to make them: kv-prereg report"):
        check(folder)


def test_without_a_verdict_nothing_can_be_drawn(confirmed, tmp_path):
    folder = shutil.copytree(confirmed, tmp_path / "study")
    (folder / "verdict.json").unlink()
    with pytest.raises(CannotTell, match="nothing can be drawn from these files"):
        check(folder)
