"""How much of a token is kept."""

import pytest

from protocol.instruments.show import problem_answers
from protocol.instruments.show.problem_answers import Piece


@pytest.mark.parametrize(
    ("share", "level"), [(0, 0), (1 / 8, 1), (4 / 12, 1), (0.34, 2), (8 / 12, 2), (0.67, 3), (7 / 8, 3), (1, 4)]
)
def test_a_share_has_one_of_five_levels_none_and_all_alone(share, level):
    assert problem_answers.share_level(share) == level


def test_neighbouring_tokens_of_one_level_are_one_run_and_no_text_is_lost():
    pieces = [Piece("a", 0), Piece(" b", 0), Piece(" c", 1), Piece("", 1), Piece(" d", 0)]
    assert problem_answers.merge_levels(pieces) == [("a b", 0), (" c", 4), (" d", 0)]
    assert problem_answers.merge_levels([]) == []
