"""The table of error rates: made by its benchmark, and never kinder than what lies between its entries."""

import pytest

from analysis.simulation import error_table, type_one_error
from analysis.simulation.error_table import INDEXED_KINDS, MARGIN_TESTS, TWO_SIDED, TableGrid
from analysis.stats.methods import EXACT_BELOW
from benchmarks import error_table as made


@pytest.mark.parametrize("method", ["t", "sign-flip", "exact-bootstrap", "restricted-likelihood"])
def test_an_entry_made_anew_is_the_one_that_is_held(method):
    assert made.cell(method, 2, 100) == error_table.load_table()[TWO_SIDED][method]["2"]["100"]


def test_an_entry_of_a_margin_made_anew_is_the_one_that_is_held():
    for test, rows in zip(MARGIN_TESTS, made.cells_of_margin("restricted-likelihood", 2, 100, 0.1), strict=True):
        assert rows == error_table.load_table()[test]["restricted-likelihood"]["2"]["0.1"]["100"]


def test_the_table_has_every_method_seeds_size_and_level():
    grid, table = TableGrid(), error_table.load_table()
    assert set(table) == {TWO_SIDED, *MARGIN_TESTS}
    sizes, of_margins = ({f"{size}" for size in of} for of in (grid.problems, grid.problems_of_margins))
    sizes_of_auto = {f"{size}" for size in grid.problems if size > EXACT_BELOW}
    margins = {f"{margin:g}" for margin in grid.margins}
    rows = []
    assert set(table[TWO_SIDED]) == set(made.OF)
    for of in table[TWO_SIDED].values():
        assert {int(seeds) for seeds in of} == set(grid.seeds)
        assert all(set(each) in (sizes, sizes_of_auto) for each in of.values())
        rows += [row for each in of.values() for row in each.values()]
    for test in MARGIN_TESTS:
        assert set(table[test]) == set(made.OF_MARGINS)
        for of in table[test].values():
            assert {int(seeds) for seeds in of} == set(grid.seeds_of_margins)
            assert all(set(each) == margins for each in of.values())
            assert all(set(last) == of_margins for each in of.values() for last in each.values())
            rows += [row for each in of.values() for last in each.values() for row in last.values()]
    assert all(len(row) == len(grid.levels) for row in rows)
    assert all(0 <= entry[4] < len(INDEXED_KINDS) and 0 < entry[5] < 10_000 for row in rows for entry in row)


def put(monkeypatch, ratios: dict[int, int]) -> None:
    """A table of three seeds in which `ratios` (thousandths) stand for sizes, 900 for all others."""
    grid = TableGrid()
    rows = {str(size): [[ratios.get(size, 900)] * 3 + [0, 1, 200] for _ in grid.levels] for size in grid.problems}
    monkeypatch.setattr(
        error_table, "load_table", lambda: {TWO_SIDED: {"t": {str(seeds): rows for seeds in grid.seeds}}}
    )


def test_between_two_sizes_the_worse_one_counts(monkeypatch):
    put(monkeypatch, {250: 950, 300: 1_100})
    assert error_table.look_up(TWO_SIDED, "t", 287, 3, 0.05).ratio == 1.1
    assert error_table.look_up(TWO_SIDED, "t", 300, 3, 0.05).ratio == 1.1
    assert error_table.look_up(TWO_SIDED, "t", 250, 3, 0.05).ratio == 0.95
    assert error_table.look_up(TWO_SIDED, "t", 287, 4, 0.017).ratio == 1.1
    assert error_table.look_up(TWO_SIDED, "t", 287, 3, 0.05).rate == pytest.approx(1.1 * 0.05)


def test_neighbours_that_disagree_answer_nothing_and_those_that_fail_alike_fail(monkeypatch):
    put(monkeypatch, {250: 950, 300: 1_300})
    assert error_table.look_up(TWO_SIDED, "t", 287, 3, 0.05) is None
    assert error_table.look_up(TWO_SIDED, "t", 300, 3, 0.05).exceeds()
    put(monkeypatch, {250: 1_400, 300: 1_300})
    assert error_table.look_up(TWO_SIDED, "t", 287, 3, 0.05).ratio == 1.4


@pytest.mark.parametrize("outside", [(99, 3, 0.05), (1_001, 3, 0.05), (287, 6, 0.05), (287, 3, 0.3)])
def test_outside_the_table_nothing_is_said(outside):
    assert error_table.look_up(TWO_SIDED, "t", *outside) is None


def test_one_seed_is_counted_out_and_needs_no_table():
    assert error_table.look_up(TWO_SIDED, "t", 287, 1, 0.05) is None
    assert type_one_error.worst_type_one_error("t", 287, 1, 0.05, None).studies == 0


def test_drawn_methods_are_looked_up_as_what_they_tend_to():
    drawn, whole = (error_table.look_up(TWO_SIDED, name, 287, 3, 0.0125) for name in ("bootstrap", "exact-bootstrap"))
    assert drawn == whole
    assert whole.exceeds(2)


def test_auto_is_exact_where_so_many_problems_cannot_differ():
    for test, margin in ((TWO_SIDED, None), ("worse", 0.05), ("below", 0.03)):
        auto, exact = (
            error_table.look_up(test, name, 287, 3, 0.0125, margin) for name in ("auto", "restricted-likelihood")
        )
        assert auto == exact
        assert not exact.exceeds()
