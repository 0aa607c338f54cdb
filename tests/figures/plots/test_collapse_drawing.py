import drawing_checks
import judgements
import pandas as pd
import pytest
from matplotlib.figure import Figure
from scipy import stats

from figures.plots import collapse

JUDGED = judgements.judgement()


def answered(arm: str, budget: str, *ends: str, model: str = "tiny") -> list[dict]:
    """One problem each: its grade, with "cut" before it where the limit of tokens stopped it."""
    rows = []
    for number, end in enumerate(ends):
        stop = "length" if end.startswith("cut ") else "eos"
        grade = end.removeprefix("cut ")
        row = {"model": model, "task": "chain", "budget": budget, "arm": arm, "seed": 0, "state": "ok"}
        row |= {"problem": f"chain/06/{number:03d}", "grade": grade, "stop": stop}
        if grade == "failed":
            row |= {"state": "failed", "grade": None, "stop": None}
        rows.append(row | {"correct": {"correct": 1.0, "wrong": 0.0, "no answer": 0.0}.get(grade)})
    return rows


def cells(**place: str) -> list[collapse.Ending]:
    rows = [
        *answered("full", "full", *["correct"] * 6, **place),
        *answered(
            "alpha",
            "64",
            "wrong",
            "wrong",
            "cut no answer",
            "cut no answer",
            "no answer",
            "correct",
            "timeout",
            **place,
        ),
        *answered("1d", "64", "cut wrong", "failed", *["correct"] * 4, **place),
    ]
    return collapse.count_endings(pd.DataFrame(rows))


FULL, ALPHA, ONE = cells()


@pytest.fixture(scope="module")
def figure() -> Figure:
    return drawing_checks.drawn(collapse.collapse, JUDGED, [FULL, ALPHA, ONE])


def test_shares_are_those_of_a_hand_count():
    assert [one.arm for one in (FULL, ALPHA, ONE)] == ["full", "alpha", "1d"]
    assert (ALPHA.wrong.n_matching, ALPHA.wrong.n_total) == (5, 6)
    assert (ALPHA.no_answer.n_matching, ALPHA.no_answer.n_total) == (3, 5)
    assert (ALPHA.truncated.n_matching, ALPHA.truncated.n_total) == (2, 7)
    assert ALPHA.ungraded == 1
    assert (ONE.no_answer.n_matching, ONE.no_answer.n_total) == (0, 1)
    assert (ONE.truncated.n_matching, ONE.truncated.n_total) == (1, 5)  # the failed lane was not generated
    assert ONE.ungraded == 1
    assert (FULL.wrong.n_matching, FULL.no_answer.n_total) == (0, 0)


def test_what_is_drawn_is_what_was_counted(figure):
    found = drawing_checks.by_gid(figure)
    limits = stats.binomtest(3, 5).proportion_ci(0.95, method="wilson")
    assert found["no_answer-1"][0].get_xdata()[0] == 60
    expected = [100 * limits.low, 100 * limits.high]
    assert list(found["no_answer-interval-1"][0].get_xdata()) == pytest.approx(expected)
    assert found["truncated-1"][0].get_xdata()[0] == pytest.approx(200 / 7)
    assert "no_answer-0" not in found  # no wrong answer, so no share of them
    assert found["truncated-0"][0].get_xdata()[0] == 0


def test_a_row_prints_its_numbers_beside_its_marks(figure):
    rows = {text.get_text(): text.get_position()[1] for text in drawing_checks.texts(figure)}
    row = [text.get_text() for text in drawing_checks.texts(figure) if text.get_position()[1] == rows["alpha"]]
    assert row == ["alpha", "5", "60.0 [23.1, 88.2]", "28.6 [8.2, 64.1]"]


def test_a_share_of_fewer_than_five_answers_is_a_count_without_limits(figure):
    found = drawing_checks.by_gid(figure)
    assert (ONE.no_answer.n_total, ONE.truncated.n_total) == (1, 5)
    assert "no_answer-2" in found
    assert "no_answer-interval-2" not in found
    assert "truncated-interval-2" in found
    texts = drawing_checks.texts(figure)
    (y,) = {text.get_position()[1] for text in texts if text.get_text() == "1d"}
    row = [text.get_text() for text in texts if text.get_position()[1] == y]
    assert row == ["1d", "1", "0 of 1", "20.0 [3.6, 62.4]"]
    assert "shares of fewer than 5 answers" in drawing_checks.said(figure)


def test_the_markdown_holds_a_row_an_arm_with_every_count():
    lines = collapse.format_markdown(JUDGED, cells()).splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    assert {len(row) for row in rows} == {9}
    assert rows[3] == ["tiny", "chain", "64", "alpha", "6", "5", "60.0 [23.1, 88.2]", "28.6 [8.2, 64.1]", "1"]
    assert rows[2][5:7] == ["0", "\N{EN DASH}"]
    assert judgements.judgement()["verdict"] in lines[2]


@pytest.mark.parametrize("model", ["tiny", "a-model-of-a-long-name-" * 4])
def test_every_text_lies_on_the_page_and_on_no_other(model):
    figure = drawing_checks.drawn(collapse.collapse, JUDGED, cells(model=model))
    assert "exploratory" in drawing_checks.said(figure)
