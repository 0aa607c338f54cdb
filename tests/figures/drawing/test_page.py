import pytest

from figures.drawing import page


def light(colour: str) -> float:
    """Relative luminance, WCAG 2."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colour", ["#ffffff", "#deebf7", "#6baed6", "#4a98c9", "#2171b5", "#08306b", "#000000"])
def test_text_on_a_colour_is_of_the_ink_that_stands_out_more(colour):
    chosen = page.contrasting_ink(colour)
    other = {page.INK: page.FACE, page.FACE: page.INK}[chosen]
    assert contrast(chosen, colour) >= contrast(other, colour)
    assert contrast(chosen, colour) >= 4


def test_pale_text_can_be_read_on_the_page_and_on_its_bands():
    for ink in (page.INK, page.PALE):
        for ground in (page.FACE, page.BAND):
            assert contrast(ink, ground) >= 4.5


def test_every_drawing_stands_on_a_face_of_its_own():
    assert {page.STYLE["figure.facecolor"], page.STYLE["savefig.facecolor"]} == {page.FACE}
