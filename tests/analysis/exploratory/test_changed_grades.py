"""Which lanes are held against which, and what a lane is worth."""

import pytest

from analysis.exploratory import changed_grades


@pytest.mark.parametrize(
    ("state", "grade", "score", "worth"),
    [
        ("ok", "correct", None, 1.0),
        ("ok", "wrong", None, 0.0),
        ("ok", "no answer", None, 0.0),
        ("ok", "timeout", None, 0.0),
        ("ok", "scored", "0.250000", 0.25),
        ("ok", "error", None, None),
        ("failed", None, None, None),
    ],
)
def test_a_lane_is_worth_what_a_judgement_counts(state, grade, score, worth):
    body = {"state": state, "grade": grade} | ({"score": score} if score else {})
    assert changed_grades.judged_score(body) == worth


def lane(arm, grade, *, budget="64", seed=1, problem="p"):
    cell = {"model": "m", "task": "t", "budget": budget, "arm": arm, "seed": seed}
    return {"cell": cell, "problem": problem, "state": "ok", "grade": grade}


def test_a_lane_that_was_fed_the_full_caches_text_is_never_better_than_it():
    whole = lane("full", "wrong", budget="full")
    followers = [
        lane(arm, "scored") | {"score": score, "divergence": {}} for arm, score in (("a", "0.9"), ("b", "1.0"))
    ]
    (problem,) = changed_grades.find_changed_grades([whole, *followers], CONTENT)
    assert (problem.lost, problem.gained, problem.lanes) == (1, 0, 2)


CONTENT = {"decision": {"against": ["b"]}}


def test_lanes_are_held_against_the_full_cache_of_their_seed():
    whole = [lane("full", "correct", budget="full", seed=seed) for seed in (1, 2)]
    own = [lane("a", "wrong", seed=seed) for seed in (2, 1, 3)]
    find = changed_grades.reference_finder(CONTENT, [*own, *whole])
    assert [find(body) for body in own] == [whole[1], whole[0], whole[0]]
    assert find(lane("a", "wrong", problem="q")) is None


def test_without_a_full_cache_the_comparator_at_the_same_budget_stands_in_its_place():
    bodies = [lane(arm, "wrong", budget=budget) for arm in ("a", "b") for budget in ("64", "96")]
    find = changed_grades.reference_finder(CONTENT, bodies)
    assert [find(body) for body in bodies[:2]] == bodies[2:]
    assert changed_grades.reference_name(CONTENT, bodies) == "b"
    swept = CONTENT | {"sweep": {"baseline": "a"}}
    assert changed_grades.reference_finder(swept, bodies)(bodies[3]) is bodies[1]


def test_problems_are_listed_by_the_number_of_lanes_that_are_graded_otherwise():
    bodies = [
        *(lane("full", grade, budget="full", problem=name) for name, grade in (("p", "correct"), ("q", "wrong"))),
        *(lane(arm, "wrong", budget=budget) for arm in "ab" for budget in ("64", "96")),
        lane("c", "correct"),
        lane("a", "correct", problem="q"),
        lane("b", "error", problem="q"),
        lane("full", "correct", budget="full", problem="same"),
        lane("a", "correct", problem="same"),
    ]
    first, second = changed_grades.find_changed_grades(bodies, CONTENT)
    assert (first.problem, first.lost, first.gained, first.lanes) == ("p", 4, 0, 5)
    assert (second.problem, second.lost, second.gained, second.lanes) == ("q", 0, 1, 2)
    (only,) = changed_grades.find_changed_grades(bodies, CONTENT, lambda body: body["cell"]["budget"] == "96")
    assert (only.problem, only.lost, only.budget) == ("p", 2, "96")
