"""Where two texts part."""

import pytest

from analysis.exploratory import text_difference


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
    assert text_difference.first_difference(one, other) == (word, character)
    assert text_difference.first_difference(other, one) == (word, character)
    assert one[:character] == other[:character]
    assert one[character:] != other[character:]


def test_equal_texts_part_nowhere():
    assert text_difference.first_difference("a b", "a b") is None
