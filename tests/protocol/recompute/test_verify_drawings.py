"""Drawings and the report are no evidence: on request they are made again, and compared."""

import shutil

import pytest

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
    assert check(folder) == f"{len(drawn)} files drawn again from the records, the same bytes"


def test_a_part_of_the_drawings_is_compared_alone(folder):
    shutil.rmtree(folder / "figures")
    assert check(folder).startswith("1 file drawn again")


@pytest.mark.parametrize("name", ["report.html", "figures/forest.png", "figures/forest.svg", "figures/accuracy.png"])
def test_an_edit_is_named_where_the_page_was_made_by_what_is_here(folder, name):
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(Tampered, match=f"^{name}: not what is drawn here from the records, by the code that drew"):
        check(folder)


def test_two_drawings_that_were_exchanged_are_named(folder):
    one, other = folder / "figures" / "forest.png", folder / "figures" / "accuracy.png"
    data = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(data)
    with pytest.raises(Tampered, match=r"^figures/accuracy.png, figures/forest.png: not what is drawn here"):
        check(folder)


def test_a_drawing_that_the_study_does_not_give_is_named(folder):
    (folder / "figures" / "trajectories.png").write_bytes(b"")
    with pytest.raises(Tampered, match=r"^figures/trajectories.png: not what"):
        check(folder)


def test_what_other_code_drew_cannot_be_compared(folder):
    page = folder / "report.html"
    page.write_text(page.read_text().replace("kv-prereg figures ", "kv-prereg figures 0"))
    with pytest.raises(CannotTell, match="edited, or drawn by other code or libraries; draw anew: kv-prereg rep"):
        check(folder)


def test_drawings_without_a_page_cannot_be_compared_where_they_differ(folder):
    (folder / "report.html").unlink()
    assert "the same bytes" in check(folder)
    (folder / "figures" / "forest.png").write_bytes(b"")
    with pytest.raises(CannotTell, match=r"^figures/forest.png: not what is drawn here"):
        check(folder)


def test_nothing_drawn_is_nothing_to_compare(folder):
    shutil.rmtree(folder / "figures")
    (folder / "report.html").unlink()
    with pytest.raises(NotRun, match=r"nothing is drawn; kv-prereg report"):
        check(folder)


def test_without_a_verdict_nothing_can_be_drawn(confirmed, tmp_path):
    folder = shutil.copytree(confirmed, tmp_path / "study")
    (folder / "verdict.json").unlink()
    with pytest.raises(CannotTell, match="nothing can be drawn from these files"):
        check(folder)
