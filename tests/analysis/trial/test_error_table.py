"""The table of error rates: made by its benchmark, and never kinder than what lies between its entries."""

import pytest

from analysis.trial import error_table, type_one
from analysis.trial.error_table import Grid
from analysis.trial.populations import SETTINGS
from benchmarks import error_table as made


@pytest.mark.parametrize("method", ["t", "sign-flip", "exact-bootstrap"])
def test_an_entry_made_anew_is_the_one_that_is_held(method):
    assert made.cell(method, 2, 100) == error_table.table()[method]["2"]["100"]


def test_the_table_has_every_method_seeds_size_and_level():
    grid = Grid()
    assert set(error_table.table()) == set(made.OF)
    for method in made.OF:
        for seeds in grid.seeds:
            for problems in grid.problems:
                rows = error_table.table()[method][str(seeds)][str(problems)]
                assert len(rows) == len(grid.levels)
                assert all(0 <= setting < len(SETTINGS) for *_, setting in rows)


def put(monkeypatch, ratios: dict[int, int]) -> None:
    """A table of three seeds in which `ratios` (thousandths) stand for sizes, 900 for all others."""
    grid = Grid()
    rows = {str(size): [[ratios.get(size, 900)] * 3 + [0, 2] for _ in grid.levels] for size in grid.problems}
    monkeypatch.setattr(error_table, "table", lambda: {"t": {str(seeds): rows for seeds in grid.seeds}})


def test_between_two_sizes_the_worse_one_counts(monkeypatch):
    put(monkeypatch, {250: 950, 300: 1_100})
    assert error_table.looked_up("t", 287, 3, 0.05).ratio == 1.1
    assert error_table.looked_up("t", 300, 3, 0.05).ratio == 1.1
    assert error_table.looked_up("t", 250, 3, 0.05).ratio == 0.95
    assert error_table.looked_up("t", 287, 4, 0.017).ratio == 1.1  # between seeds and levels as well
    assert error_table.looked_up("t", 287, 3, 0.05).rate == pytest.approx(1.1 * 0.05)


def test_neighbours_that_disagree_answer_nothing_and_those_that_fail_alike_fail(monkeypatch):
    put(monkeypatch, {250: 950, 300: 1_300})
    assert error_table.looked_up("t", 287, 3, 0.05) is None
    assert error_table.looked_up("t", 300, 3, 0.05).exceeds()
    put(monkeypatch, {250: 1_400, 300: 1_300})
    assert error_table.looked_up("t", 287, 3, 0.05).ratio == 1.4


@pytest.mark.parametrize("outside", [(99, 3, 0.05), (1_001, 3, 0.05), (287, 6, 0.05), (287, 3, 0.3)])
def test_outside_the_table_nothing_is_said(outside):
    assert error_table.looked_up("t", *outside) is None


def test_one_seed_is_counted_out_and_needs_no_table():
    assert error_table.looked_up("t", 287, 1, 0.05) is None
    assert type_one.type_one("t", 287, 1, 0.05, None).studies == 0


def test_drawn_methods_are_looked_up_as_what_they_tend_to():
    drawn, whole = (error_table.looked_up(name, 287, 3, 0.0125) for name in ("bootstrap", "exact-bootstrap"))
    assert drawn == whole
    assert whole.exceeds(2)
