"""Where two texts part, how much of a token is kept, and which lanes are held against which."""

import pytest

from analysis.exploratory import changed_grades, problem_answers
from analysis.exploratory.problem_answers import Piece


@pytest.mark.parametrize(
    ("one", "other", "word", "character"),
    [
        ("a b c", "a b d", 3, 4),
        ("ab cd ef", "ab ce ef", 2, 3),
        ("a b", "a b c", 3, 3),  # one ends where the other goes on: no word is cut
        ("a b", "a bc", 2, 2),
        ("a b", "a\nb", 2, 1),
        ("", "x", 1, 0),
        ("x" * 80, "x" * 79 + "y", 2, 79),  # no word to go back to
        (" 7705.", " 1:1", 1, 1),
    ],
)
def test_texts_part_at_the_first_word_that_is_not_the_same(one, other, word, character):
    assert problem_answers.first_difference(one, other) == (word, character)
    assert problem_answers.first_difference(other, one) == (word, character)
    assert one[:character] == other[:character]
    assert one[character:] != other[character:]


def test_equal_texts_part_nowhere():
    assert problem_answers.first_difference("a b", "a b") is None


@pytest.mark.parametrize(
    ("share", "level"),
    [(0, 0), (1 / 8, 1), (4 / 12, 1), (0.34, 2), (8 / 12, 2), (0.67, 3), (7 / 8, 3), (1, 4)],
)
def test_a_share_has_one_of_five_levels_none_and_all_alone(share, level):
    assert problem_answers.share_level(share) == level


def test_neighbouring_tokens_of_one_level_are_one_run_and_no_text_is_lost():
    pieces = [Piece("a", 0), Piece(" b", 0), Piece(" c", 1), Piece("", 1), Piece(" d", 0)]
    assert problem_answers.merge_levels(pieces) == [("a b", 0), (" c", 4), (" d", 0)]
    assert problem_answers.merge_levels([]) == []


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
    assert problem_answers.judged_score(body) == worth


def lane(arm, grade, *, budget="64", seed=1, problem="p"):
    cell = {"model": "m", "task": "t", "budget": budget, "arm": arm, "seed": seed}
    return {"cell": cell, "problem": problem, "state": "ok", "grade": grade}


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
