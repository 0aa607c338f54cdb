"""A long context loses its middle, by words or by tokens."""

import random
from itertools import pairwise

import pytest
from studies import words

from protocol.formats.refusals import BadInput
from protocol.tasks.middle_cut import MaxLength, cut_middle

WORDS = "one two\nthree  four five six seven"


@pytest.mark.parametrize(
    ("most", "kept"),
    [(7, WORDS), (8, WORDS), (6, "one two\nthree five six seven"), (5, "one two\nthree six seven"), (2, "one seven")],
)
def test_words_are_kept_from_both_ends_with_the_white_space_between_them(most, kept):
    assert cut_middle(WORDS, MaxLength(words=most), lambda text: pytest.fail("words need no tokenizer")) == kept


@pytest.mark.parametrize(("most", "kept"), [(10, "0123456789"), (5, "01289"), (4, "0189"), (2, "09")])
def test_tokens_are_kept_from_both_ends(most, kept):
    assert cut_middle("0123456789", MaxLength(tokens=most), len) == kept


def test_as_much_is_kept_as_fits():
    """The longest beginning and end of at most half the tokens each, as trying every length finds them."""
    source = random.Random(3)
    for _ in range(30):
        text = "".join(source.choices("ab  ", k=source.randrange(2, 60)))
        most = source.randrange(2, 12)
        if words(text) <= most:
            continue
        heads = [n for n in range(len(text)) if words(text[:n]) <= most - most // 2]
        tails = [n for n in range(len(text)) if words(text[len(text) - n :]) <= most // 2]
        expected = text[: max(heads)] + text[len(text) - max(tails) :]
        assert cut_middle(text, MaxLength(tokens=most), words) == expected


def test_what_is_kept_fits_where_the_joint_makes_a_token_more():
    """Under this tokenizer a digit beside a letter costs one more."""

    def count(text):
        return len(text) + sum(a.isdigit() != b.isdigit() for a, b in pairwise(text))

    kept = cut_middle("aaaaaaaaaa1111111111", MaxLength(tokens=8), count)
    assert count(kept) <= 8
    assert kept.startswith("aaaa")


def test_a_long_text_is_measured_a_few_times():
    asked = []

    def count(text):
        asked.append(text)
        return len(text) // 4 + 1

    cut_middle("word " * 10**5, MaxLength(tokens=1000), count)
    assert len(asked) < 50


def test_nothing_is_cut_where_nothing_is_said():
    assert cut_middle(WORDS, None, len) == WORDS


@pytest.mark.parametrize(
    "longest", [MaxLength(), MaxLength(words=5, tokens=5), MaxLength(words=1), MaxLength(tokens=0)]
)
def test_one_unit_is_said_and_enough_of_it(longest):
    with pytest.raises(BadInput, match=r"longest: write either . words = 20000 . or . tokens = 31500 .,"):
        longest.validate()
