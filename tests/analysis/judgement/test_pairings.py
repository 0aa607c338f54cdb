"""Lanes as a table of problems and seeds, whatever order their records came in."""

import numpy as np
import pandas as pd

from analysis.judgement.contrasts import problem_table


def test_a_table_has_the_problems_as_asked_and_the_seeds_ascending_as_a_pivot_has():
    lanes = pd.DataFrame(
        {"problem": ["b", "a", "b", "c", "a", "c"], "seed": [5, 2, 2, 5, 5, 2], "correct": [1.0, 2, 3, 4, 5, 6]}
    )
    table = problem_table(lanes, "correct", ["c", "a", "b"])
    assert table.tolist() == [[6, 4], [2, 5], [3, 1]]
    pivoted = lanes.pivot(index="problem", columns="seed", values="correct").loc[["c", "a", "b"]]
    assert np.array_equal(table, pivoted.to_numpy())
