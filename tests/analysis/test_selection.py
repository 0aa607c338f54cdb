"""The rule of a sweep, on numbers counted by hand and on those of the paper."""

import json
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
import study

from analysis import selection
from analysis.judgement.untrusted_files import RecordError
from analysis.selection import choose, select
from protocol.formats.vocabulary import RERUN_SUFFIX

HALF_A_POINT = Fraction(Decimal("0.005"))
# "Minimal-Intervention KV Retention", Table 3: points by (model, budget), one row a weight.
TABLE_3 = {0.5: (0.5, 4.0, 0.0, -1.5), 1.0: (-1.0, 1.0, 0.0, -2.0), 1.5: (2.5, 1.0, -1.9, 0.0)}


def points(values):
    return [Fraction(str(value)) / 100 for value in values]


def test_the_papers_table_selects_one_half():
    found = choose([points(TABLE_3[weight]) for weight in (0.5, 1.0, 1.5)], HALF_A_POINT)
    assert (found.winner, found.best) == (0, 0)
    # 1.6 / 4: the paper prints +0.43 from cells before rounding.
    assert [float(100 * mean) for mean in found.means] == [0.75, -0.5, 0.4]


@pytest.mark.parametrize(
    ("means", "winner"),
    [
        ([0.75, -0.50, 0.43], 0),  # the aggregate row of Table 3
        ([0.43, -0.50, 0.75], 0),  # within 0.5 of the best, and earlier
        ([0.24, -0.50, 0.75], 2),
        ([0.25, 0.75, 0.75], 0),  # 0.5 exactly is a tie
        ([-0.50, 0.30, 0.75], 1),  # the earliest that ties, not the nearest
        ([0.0, 0.0, 0.0], 0),
        ([-3.0, -2.4, -2.0], 1),  # the best of bad ones
    ],
)
def test_within_the_tolerance_of_the_best_the_earliest_candidate_wins(means, winner):
    found = choose([points([mean]) for mean in means], HALF_A_POINT)
    assert found.winner == winner
    assert found.best == means.index(max(means))


def test_a_tolerance_of_zero_leaves_exact_ties_only():
    assert choose([points([0.74]), points([0.75]), points([0.75])], Fraction(0)).winner == 1


def test_every_cell_weighs_the_same():
    # 3 and -1 over two cells are 1; 0 and 1 are 1/2, however many problems the cells had.
    assert choose([points([0, 1]), points([3, -1])], Fraction(0)).means == tuple(points([0.5, 1]))


def test_candidates_with_other_cells_are_refused():
    for unequal in ([], [[]], [points([1]), points([1, 2])]):
        with pytest.raises(ValueError, match="different cells"):
            choose(unequal, HALF_A_POINT)


# ---------------------------------------------------------------- from records

SWEEP = {"name": "best", "candidates": ["light", "heavy"], "baseline": "base", "seeds": [5, 6], "tolerance": "0.005"}
# arm, budget -> problems solved by both seeds, of four; heavy at 128 also p3 with seed 6 alone
SOLVED = {
    ("base", "64"): {0},
    ("base", "128"): {0, 1},
    ("light", "64"): {0, 1},
    ("light", "128"): {1},
    ("heavy", "64"): {0, 2},
    ("heavy", "128"): {0, 1},
}


def write(folder: Path, change=None) -> Path:
    """A lock with a sweep and the records of its probe; `change` edits a body, or drops it by None."""
    content = study.content() | {"budgets": ["64", "128"], "sweep": SWEEP}
    content["arms"] = {name: {"policy": f"{name}-policy"} for name in ("light", "heavy", "base")}
    lock = study.canonical(
        {
            "name": folder.name,
            "protocol": {"content": content},
            "grid": [],
            "items": {"needle": {"dev": [f"p{i}" for i in range(4)], "confirm": ["held-out"]}},
        }
    )
    folder.mkdir()
    (folder / "lock.json").write_bytes(lock + b"\n")
    bodies = []
    for arm in ("light", "heavy", "base", "base" + RERUN_SUFFIX):
        for budget in ("64", "128"):
            for seed in (5, 6):
                for problem in range(4):
                    solved = problem in SOLVED[arm.removesuffix(RERUN_SUFFIX), budget]
                    solved |= (arm, budget, seed, problem) == ("heavy", "128", 6, 3)
                    cell = ["tiny", "needle", budget, arm, seed]
                    body = study.ordinary(study.hashlib.sha256(lock).hexdigest(), cell, f"p{problem}")
                    body |= {"phase": "probe", "grade": "correct" if solved else "wrong"}
                    body = change(body) if change else body
                    bodies += [] if body is None else [body]
    (folder / "records").mkdir()
    study.append(folder, *bodies)
    (folder / "records").rename(folder / "probe")
    return folder


def in_cell(body, arm, budget, seed, problem):
    cell = body["cell"]
    return (cell["arm"], cell["budget"], cell["seed"], body["problem"]) == (arm, budget, seed, problem)


def test_the_selection_is_that_counted_by_hand(tmp_path):
    found = select(write(tmp_path / "study"))
    # light: +1/4 at 64, -1/4 at 128. heavy: +1/4 and, one seed of one problem, +1/8.
    differences = {(cell["candidate"], cell["budget"]): cell["difference"] for cell in found["cells"]}
    assert differences == {
        ("light", "64"): "0.250000",
        ("light", "128"): "-0.250000",
        ("heavy", "64"): "0.250000",
        ("heavy", "128"): "0.125000",
    }
    assert found["means"] == {"light": "0.000000", "heavy": "0.187500"}
    assert (found["winner"], found["best"], found["policy"]) == ("heavy", "heavy", "heavy-policy")
    assert {cell["problems"] for cell in found["cells"]} == {4}
    assert all(float(cell["low"]) <= float(cell["difference"]) <= float(cell["high"]) for cell in found["cells"])
    assert found["again"] == {"lanes": 16, "differ": 0}


def test_scores_are_selected_by_their_exact_means(tmp_path):
    """A third of each solved problem: differences are a third of those above, to the last place."""

    def third(body):
        score = "0.333333" if body["grade"] == "correct" else "0.000000"
        first = in_cell(body, "base" + RERUN_SUFFIX, "64", 5, "p3")
        return body | {"grade": "scored", "score": "0.000001" if first else score}

    found = select(write(tmp_path / "study", third))
    differences = {(cell["candidate"], cell["budget"]): cell["difference"] for cell in found["cells"]}
    assert differences == {
        ("light", "64"): "0.083333",
        ("light", "128"): "-0.083333",
        ("heavy", "64"): "0.083333",
        ("heavy", "128"): "0.041667",
    }
    assert found["means"] == {"light": "0.000000", "heavy": "0.062500"}
    assert found["winner"] == "heavy"
    assert found["again"] == {"lanes": 16, "differ": 1}


def test_the_repeated_baseline_is_counted_and_does_not_decide(tmp_path):
    def other(body):
        moved = in_cell(body, "base" + RERUN_SUFFIX, "64", 5, "p3")
        return body | {"grade": "correct"} if moved else body

    plain, changed = select(write(tmp_path / "plain")), select(write(tmp_path / "changed", other))
    assert changed["again"] == {"lanes": 16, "differ": 1}
    assert {**changed, "again": 0} == {**plain, "again": 0}


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda body: None, "not run"),
        (lambda body: body | study.FAILED, "failed"),
        (lambda body: body | {"grade": "error"}, "error"),
    ],
)
def test_a_lane_without_a_grade_selects_nothing(tmp_path, change, what):
    def one(body):
        return change(body) if in_cell(body, "heavy", "64", 5, "p2") else body

    with pytest.raises(RecordError, match=rf"1 of 64 probed lanes .* tiny 64 heavy p2 \({what}\)"):
        select(write(tmp_path / "study", one))


def test_a_held_out_problem_among_the_probes_records_is_refused(tmp_path):
    def one(body):
        return body | {"problem": "held-out"} if in_cell(body, "heavy", "64", 5, "p2") else body

    with pytest.raises(RecordError, match="held-out is not in the registered grid"):
        select(write(tmp_path / "study", one))


def test_a_study_without_a_sweep_has_nothing_to_select(tmp_path):
    with pytest.raises(RecordError, match="has no sweep"):
        select(study.write(tmp_path / "small", study.content(), 2, lambda lane: {}))


def test_the_command_prints_the_selection_and_nothing_else(tmp_path, capsysbinary):
    folder = write(tmp_path / "study")
    assert selection.main([str(folder)]) == 0
    said = capsysbinary.readouterr()
    assert said.out == study.canonical(select(folder)) + b"\n"
    assert json.loads(said.out)["winner"] == "heavy"
    assert selection.main([str(tmp_path)]) == 2
    assert capsysbinary.readouterr().err.startswith(b"RecordError: ")
