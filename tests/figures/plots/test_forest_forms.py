"""The forest of a large family, and that of a narrow screen: the same contrasts in another order."""

from collections import Counter
from collections.abc import Iterator

import drawing_checks
import judgements
import pytest
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from figures.drawing import page
from figures.plots import forest_panels
from figures.plots.forest import forest
from figures.plots.forest_narrow import WIDTH, forest_narrow
from figures.plots.forest_parts import split_parts

MINUS = "\N{MINUS SIGN}"


def points(tenths: int) -> str:
    """Tenths of a percentage point, as they are printed: by hand, with a sign and one digit."""
    sign = "" if tenths == 0 else "+" if tenths > 0 else MINUS
    return f"{sign}{abs(tenths) // 10}.{abs(tenths) % 10}"


def family(arms: int, budgets: int) -> dict:
    """One model and task. Number `i` is i percentage points, from 3 below to 4 above; every second counts,
    the third memory is not matched.
    """
    rows = []
    for arm in range(arms):
        for budget in range(budgets):
            at = len(rows)
            ends = (at, at - 3, at + 4, at - 5, at + 6)
            values = (*(f"{end / 100:.6f}" for end in ends), "0.000100", at % 2 == 0, False, at % 3 != 2)
            rows.append(judgements.contrast(f"arm-{arm}", *values, budget=str(64 + budget)))
    return judgements.judgement(rows)


@pytest.fixture(scope="module", params=[(9, 3), (3, 9)], ids=["budgets across", "pairs across"])
def large(request) -> tuple[dict, Figure]:
    judged = family(*request.param)
    return judged, drawing_checks.drawn(forest, judged)


def test_a_large_family_has_every_contrast_where_it_was_judged_and_prints_it(large):
    judged, figure = large
    found = drawing_checks.by_gid(figure)
    said = [text.get_text() for text in drawing_checks.texts(figure)]
    assert len({axes.get_xlim() for axes in figure.axes}) == 1
    for index, one in enumerate(judged["contrasts"]):
        (point,), (nominal,) = found[f"point-{index}"], found[f"nominal-{index}"]
        assert point.get_xdata()[0] == pytest.approx(index)
        assert list(nominal.get_xdata()) == pytest.approx([index - 3, index + 4])
        y = point.get_ydata()[0]
        row = {text.get_text() for text in point.axes.texts if text.get_position()[1] == y}
        assert points(10 * index) in row
        assert ("†" in row) == (index % 3 == 2), one
    assert said.count("†") == 9


def test_what_is_fewer_stands_across(large):
    judged, figure = large
    heads = {text.get_text() for text in drawing_checks.texts(figure) if text.get_position()[1] == -0.62}
    budgets = {f"budget {contrast['budget']}" for contrast in judged["contrasts"]}
    arms = {f"crystal {MINUS} {contrast['against']}" for contrast in judged["contrasts"]}
    across = min(budgets, arms, key=len)
    assert len(figure.axes) == len(across) == 3
    assert across <= heads
    assert not ((budgets | arms) - across) & heads


def test_a_large_family_fits_a_page_and_no_text_lies_on_another(large):
    _, figure = large
    assert figure.get_figwidth() <= page.WIDEST
    assert figure.get_figheight() <= 6
    assert drawing_checks.off_the_page(figure) == []
    assert drawing_checks.overlapping(figure) == []


@pytest.mark.parametrize(("arms", "budgets", "large"), [(8, 3, False), (9, 3, True), (15, 15, False)])
def test_a_family_is_drawn_so_where_it_is_large_and_its_columns_have_room(arms, budgets, large):
    assert forest_panels.should_use_panels(split_parts(family(arms, budgets))) == large


# ---------------------------------------------------------------- a narrow screen


def beside() -> dict:
    """Three registered contrasts, one beside and one auxiliary."""
    judged = family(3, 1)
    apart = {"family": 1, "alpha": "0.050000", "corrected_alpha": "0.050000"}
    one = family(1, 1)["contrasts"]
    apart |= {"contrasts": [one[0] | {"against": "other"}], "auxiliary": [one[0] | {"subject": "arm-0"}]}
    return judged | {"beside": apart}


@pytest.fixture(scope="module", params=["five", "sixteen", "beside", "large"])
def narrow(request) -> tuple[dict, Figure, Figure]:
    """A judgement, its narrow drawing and its wide one."""
    judged = {
        "five": judgements.judgement,
        "sixteen": judgements.sixteen,
        "beside": beside,
        "large": lambda: family(9, 3),
    }[request.param]()
    return judged, drawing_checks.drawn(forest_narrow, judged), drawing_checks.drawn(forest, judged)


def numbers(figure: Figure) -> Iterator[str]:
    """Differences, ends of intervals, p, sizes and ratios, as they are printed beside marks."""
    ticks = {label for axes in figure.axes for label in axes.get_xticklabels()}
    for text in drawing_checks.texts(figure):
        if text not in ticks and any(text is one for axes in figure.axes for one in axes.texts):
            for word in text.get_text().replace("[", " ").replace("]", " ").replace(",", " ").split():
                if word[-1].isdigit() and "." in word:
                    yield word.lstrip("<")


def test_the_narrow_drawing_prints_the_numbers_of_the_wide_one(narrow):
    judged, figure, drawn = narrow
    own, wide = Counter(numbers(figure)), Counter(numbers(drawn))
    assert own >= wide
    if len(judged["contrasts"]) <= 24:  # the wide one leaves intervals out of a larger family
        assert own == wide
    for contrast in judged["contrasts"]:
        if contrast["difference"] is not None:
            assert {points(round(1000 * float(contrast[name]))) for name in ("difference", "low", "high")} <= set(own)


def test_its_marks_are_those_of_the_wide_one(narrow):
    _, figure, drawn = narrow
    kinds = ("point-", "nominal-", "simultaneous-")
    own, wide = (
        {gid: list(lines[0].get_xdata()) for gid, lines in drawing_checks.by_gid(one).items() if gid.startswith(kinds)}
        for one in (figure, drawn)
    )
    assert own.keys() == wide.keys()
    for gid, at in wide.items():
        assert own[gid] == pytest.approx(at), gid


def test_on_a_screen_of_390_pixels_every_text_has_ten_and_lies_on_no_other(narrow):
    _, figure, _ = narrow
    assert figure.get_figwidth() * 96 == pytest.approx(358)
    assert pytest.approx(358 / 96) == WIDTH
    assert min(text.get_size() for text in drawing_checks.texts(figure)) * 96 / 72 >= 10
    assert drawing_checks.off_the_page(figure) == []
    assert drawing_checks.overlapping(figure) == []


def test_the_label_of_a_contrast_stands_above_its_mark(narrow):
    _, figure, _ = narrow
    for gid, (line, *_) in drawing_checks.by_gid(figure).items():
        if gid.startswith("point-"):
            low, high = line.axes.get_ylim()
            assert low > high
            y = line.get_ydata()[0]
            left = [t for t in line.axes.texts if t.get_ha() == "left" and 0 < y - t.get_position()[1] < 0.25]
            assert len(left) == 1
            box: Bbox = left[0].get_window_extent()
            assert box.x0 == pytest.approx(page.MARGIN * figure.dpi, abs=2)
