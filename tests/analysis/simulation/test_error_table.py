"""The table of error rates: made by its benchmark, and never kinder than what lies between its entries."""

import numpy as np
import pytest

from analysis.simulation import error_table, type_one_error
from analysis.simulation.error_table import INDEXED_KINDS, TWO_SIDED, TableGrid
from analysis.stats.methods import EXACT_BELOW
from benchmarks import error_table as made


@pytest.mark.parametrize("method", ["t", "restricted-likelihood"])
def test_an_entry_made_anew_is_the_one_that_is_held(method):
    assert made.cell(method, 2, 100) == error_table.load_table()[TWO_SIDED][method]["2"]["100"]


def test_the_table_has_every_method_seeds_size_and_level():
    grid, table = TableGrid(), error_table.load_table()
    sizes = {f"{size}" for size in grid.problems}
    rows = []
    assert set(table[TWO_SIDED]) == set(made.OF)
    for method, of in table[TWO_SIDED].items():
        assert {int(seeds) for seeds in of} == set(grid.seeds)
        expected = {size for size in sizes if int(size) > EXACT_BELOW} if method == "auto" else sizes
        assert all(set(each) == expected for each in of.values())
        rows += [row for each in of.values() for row in each.values()]
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
    assert error_table.look_up("t", 287, 3, 0.05).ratio == 1.1
    assert error_table.look_up("t", 300, 3, 0.05).ratio == 1.1
    assert error_table.look_up("t", 250, 3, 0.05).ratio == 0.95
    assert error_table.look_up("t", 287, 4, 0.017).ratio == 1.1
    assert error_table.look_up("t", 287, 3, 0.05).rate == pytest.approx(1.1 * 0.05)


def test_neighbours_that_disagree_answer_nothing_and_those_that_fail_alike_fail(monkeypatch):
    put(monkeypatch, {250: 950, 300: 1_300})
    assert error_table.look_up("t", 287, 3, 0.05) is None
    assert error_table.look_up("t", 300, 3, 0.05).exceeds()
    put(monkeypatch, {250: 1_400, 300: 1_300})
    assert error_table.look_up("t", 287, 3, 0.05).ratio == 1.4


@pytest.mark.parametrize("outside", [(99, 3, 0.05), (1_001, 3, 0.05), (287, 6, 0.05), (287, 3, 0.3)])
def test_outside_the_table_nothing_is_said(outside):
    assert error_table.look_up("t", *outside) is None


def test_one_seed_is_counted_out_and_needs_no_table():
    assert error_table.look_up("t", 287, 1, 0.05) is None
    assert type_one_error.worst_type_one_error("t", 287, 1, 0.05, None).studies == 0


def test_auto_is_exact_where_so_many_problems_cannot_differ():
    auto, exact = (error_table.look_up(name, 287, 3, 0.0125) for name in ("auto", "restricted-likelihood"))
    assert auto == exact
    assert not exact.exceeds()


def test_an_entry_that_cannot_tell_on_which_side_of_the_limit_it_lies_answers_nothing(monkeypatch):
    grid = TableGrid()
    rows = {str(size): [[1_000, 900, 1_300, 500, 1, 200] for _ in grid.levels] for size in grid.problems}
    monkeypatch.setattr(
        error_table, "load_table", lambda: {TWO_SIDED: {"t": {str(seeds): rows for seeds in grid.seeds}}}
    )
    assert error_table.look_up("t", 300, 3, 0.05) is None


@pytest.mark.parametrize("method", ["bootstrap", "sign-flip", "max-t"])
def test_methods_outside_the_table_are_refused_at_once_where_t_errs(method):
    assert error_table.look_up(method, 287, 3, 0.0125) is None
    assert type_one_error.worst_type_one_error(method, 287, 3, 0.0125, np.random.default_rng(0)).ratio_high > 2
