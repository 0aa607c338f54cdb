import itertools

import drawing_checks
import judgements
import lanes
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from sampled import sampled

from figures.plots.needle import Cell, needle, needle_cells


def problems(length, solved):
    """By depth, how many of its three problems are solved."""
    return {
        f"needle/{length}/{depth}/{index:03d}": index < count for depth, count in solved.items() for index in range(3)
    }


def study():
    """Two budgets and lengths; one depth that no problem of 512 tokens has, one cell without a grade."""
    arms = [lanes.lanes("full", problems(512, {"0": 3, "1": 3}), budget="full")]
    for arm in ("crystal", "snapkv"):
        for budget in ("0.3", "0.5"):
            long = problems(2048, {"0": 1, "0.5": 2, "1": 0})
            if (arm, budget) == ("snapkv", "0.3"):
                long |= dict.fromkeys([f"needle/2048/1/{index:03d}" for index in range(3)])
            arms.append(lanes.lanes(arm, problems(512, {"0": 2, "1": 0}), budget=budget))
            arms.append(lanes.lanes(arm, long, budget=budget, task="needle-2048"))
    arms.append(lanes.lanes("crystal", {"association/512/high/001": 1}, task="association-512"))
    return lanes.table(*arms)


LOCK = {"items": {task: {} for task in ("needle-512", "needle-2048", "association-512")}}
CELLS = needle_cells(LOCK, study())


@pytest.fixture(scope="module")
def drawn() -> Figure:
    return drawing_checks.drawn(needle, judgements.judgement(), CELLS)


# ---------------------------------------------------------------- what a cell holds


def test_a_cell_is_the_share_of_its_problems_that_are_solved():
    found = {one[:6]: one[6:] for one in CELLS}
    assert found["tiny", "0.5", "crystal", "needle-2048", 2048, "0"] == (pytest.approx(1 / 3), 3)
    assert found["tiny", "0.5", "crystal", "needle-2048", 2048, "0.5"] == (pytest.approx(2 / 3), 3)
    assert found["tiny", "0.5", "crystal", "needle-512", 512, "1"] == (0, 3)
    assert found["tiny", "full", "full", "needle-512", 512, "0"] == (1, 3)


def test_other_tasks_and_places_without_a_grade_are_no_cells():
    found = CELLS
    assert {one.task for one in found} == {"needle-512", "needle-2048"}
    assert len(found) == 2 + 2 * 2 * (2 + 3) - 1


def test_seeds_are_averaged_and_a_problem_counts_once():
    rows = lanes.lanes("crystal", {"needle/512/0/000": [1, 0], "needle/512/0/001": [1, None]})
    assert needle_cells(LOCK, lanes.table(rows)) == [Cell("tiny", "0.5", "crystal", "needle-512", 512, "0", 0.75, 2)]


def test_the_ids_of_a_file_mean_nothing():
    rows = lanes.table(lanes.lanes("crystal", {"needle/of hay/deep/1": 1}, task="mine"))
    assert needle_cells({"items": {"mine": {"source": "0" * 64}}}, rows) == []


def test_a_study_without_a_needle_has_no_cells():
    assert needle_cells(LOCK, lanes.table(lanes.lanes("crystal", {"association/512/low/001": 1}))) == []


# ---------------------------------------------------------------- the drawing


def test_every_cell_is_drawn_once_for_its_budget_and_one_without_a_budget_beside_each(drawn):
    found = drawing_checks.by_gid(drawn)
    assert set(found) == {"/".join(map(str, one[:6])) for one in CELLS}
    assert {gid: len(places) for gid, places in found.items() if len(places) != 1} == {
        f"tiny/full/full/needle-512/512/{depth}": 2 for depth in ("0", "1")
    }


def test_its_number_and_its_count_stand_in_each_cell(drawn):
    (axes,) = drawn.axes
    for gid, places in drawing_checks.by_gid(drawn).items():
        cell = next(one for one in CELLS if "/".join(map(str, one[:6])) == gid)
        for box in places:
            inside = [text.get_text() for text in axes.texts if box.get_bbox().contains(*text.get_position())]
            assert inside == [f"{100 * cell.accuracy:.1f}", "n 3"]


def test_depths_run_to_the_right_lengths_down_and_budgets_side_by_side(drawn):
    found = drawing_checks.by_gid(drawn)

    def corner(budget, task, depth):
        (box,) = found[f"tiny/{budget}/crystal/{task}/{task.split('-')[1]}/{depth}"]
        return box.get_x(), box.get_y()

    left, top = corner("0.3", "needle-512", "0")
    assert corner("0.3", "needle-512", "1") == (pytest.approx(left + 2 * 0.56), top)  # 0.5 lies between
    assert corner("0.3", "needle-2048", "0") == (left, pytest.approx(top + 0.36))  # the axis points down
    assert corner("0.5", "needle-512", "0")[0] > left + 3 * 0.56


def test_a_cell_of_zero_is_tinted_and_a_place_without_problems_is_blank(drawn):
    (zero,) = drawing_checks.by_gid(drawn)["tiny/0.5/crystal/needle-512/512/1"]
    assert max(to_rgb(zero.get_facecolor())) < 1
    assert "tiny/0.3/snapkv/needle-2048/2048/1" not in drawing_checks.by_gid(drawn)


def test_a_higher_accuracy_is_darker_in_grey_too():
    cells = [Cell("tiny", "0.5", "crystal", "t", 512, str(i / 10), i / 10, 1) for i in range(11)]
    found = drawing_checks.by_gid(needle(judgements.judgement(), cells))
    boxes = [found[f"tiny/0.5/crystal/t/512/{i / 10}"][0] for i in range(11)]
    red, green, blue = zip(*(to_rgb(box.get_facecolor()) for box in boxes), strict=True)
    grey = [0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in zip(red, green, blue, strict=True)]
    assert grey == sorted(grey, reverse=True)
    assert min(a - b for a, b in itertools.pairwise(grey)) > 0.02


def test_one_length_of_two_tasks_is_two_lines_that_name_the_task():
    cells = [Cell("tiny", "0.5", "crystal", task, 512, "0", 0.5, 3) for task in ("old", "new")]
    said = drawing_checks.said(needle(judgements.judgement(), cells))
    assert "512 (old)" in said
    assert "512 (new)" in said


def test_it_says_that_it_is_exploratory_and_what_became_of_the_claim(drawn):
    said = drawing_checks.said(drawn)
    assert "exploratory" in said
    assert "Only the registered contrasts are confirmatory" in said
    assert "A small study: INCONCLUSIVE for tiny alone, n < 200, UNANCHORED" in said


@pytest.mark.parametrize(
    ("name", "depths"), sampled(["crystal", "crystal-with-a-name-as-long-as-a-line-of-a-book-is-wide"], [1, 11], of=2)
)
def test_every_text_lies_on_the_page_and_on_no_other(name, depths):
    cells = [
        Cell(model, budget, arm, "needle", length, str(depth / 10), 1.0, 1000)
        for model in ("tiny", "small")
        for budget in ("0.3", "0.5")
        for arm in (name, "snapkv")
        for length in (256, 131072)
        for depth in range(depths)
    ]
    drawing_checks.drawn(needle, judgements.judgement(), cells)
