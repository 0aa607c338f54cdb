"""The forest of a large family: the same contrasts in another order."""

import drawing_checks
import judgements
import pytest
from matplotlib.figure import Figure

from figures.drawing import page
from figures.plots import forest_panels
from figures.plots.forest import forest
from figures.plots.forest_parts import memory_notes, split_parts

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


@pytest.mark.parametrize(("arms", "budgets", "large"), [(8, 3, False), (9, 3, True), (15, 15, False)])
def test_a_family_is_drawn_so_where_it_is_large_and_its_columns_have_room(arms, budgets, large):
    assert forest_panels.should_use_panels(split_parts(family(arms, budgets))) == large


@pytest.mark.parametrize(
    ("memory", "outside"), [("slots", "the slots."), ("total", "the bytes."), ("reads", "the reads.")]
)
def test_a_difference_outside_of_all_budgets_names_what_was_compared(memory, outside):
    contrast = {"memory": {"by": memory}, "isocache": {"why": "outside", "interpolated": None}}
    cache, at_equal = memory_notes([contrast], "a", "b")
    assert outside in at_equal
    assert ("a new token reads" in cache) is (memory == "reads")
