"""The graders `equals` and `contains`, of short answers in words and numbers."""

import pytest

from protocol import grading

RIGHT_AND_CONTAINED = [  # the whole answer is the gold: both graders take it
    ("Lima", "lima."),
    ("Lima", "**Lima**"),
    ("Lima", "The Lima"),
    ("Lima", "<think>Quito? No.</think>\n Lima<|im_end|>"),
    ("1,000", "1000"),
    ("-3", "\N{MINUS SIGN}3."),
    ("3.5", "(3.5)"),
    ("C++", "c++"),
    ("New York", "new  york"),
    ("Stra\N{LATIN SMALL LETTER SHARP S}e", "STRASSE"),
]
CONTAINED_ALONE = [
    ("Lima", "The capital is Lima, of course"),
    ("42", "It costs $42."),
    ("Peter", "Peter's house"),
    ("\u5229\u9a6c", "\u7b54\u6848\u662f\u5229\u9a6c\u3002"),  # Chinese, which writes no spaces
    ("Lima", "I think\nLima"),
]
WRONG = [
    ("Al", "Also Lima"),
    ("3", "3.5"),
    ("3", "-3"),
    ("3", "13"),
    ("5", ".5"),
    ("5", "2,5"),
    ("000", "1,000"),
    ("C", "C++"),
    ("C", "C#"),
    ("Lima", "Quito"),
    ("Lima", "<think>Lima</think>Quito"),
]


def status(name, gold, text):
    return grading.get_grader(name).grade(gold, text).status


@pytest.mark.parametrize(("gold", "text"), RIGHT_AND_CONTAINED)
def test_an_answer_that_is_the_gold_is_right_to_both(gold, text):
    assert (status("equals", gold, text), status("contains", gold, text)) == ("correct", "correct")


@pytest.mark.parametrize(("gold", "text"), CONTAINED_ALONE)
def test_an_answer_that_has_the_gold_as_a_word_only_contains_it(gold, text):
    assert (status("equals", gold, text), status("contains", gold, text)) == ("wrong", "correct")


@pytest.mark.parametrize(("gold", "text"), WRONG)
def test_a_part_of_a_word_or_of_a_number_is_another_answer(gold, text):
    assert (status("equals", gold, text), status("contains", gold, text)) == ("wrong", "wrong")


@pytest.mark.parametrize("name", ["equals", "contains"])
@pytest.mark.parametrize("text", ["", " ...\n", "<think>Lima, I would say"])
def test_no_answer_is_a_text_without_words_and_a_wrong_word_is_a_wrong_answer(name, text):
    grade = grading.get_grader(name).grade("Lima", text)
    assert (grade.status, grade.answer) == ("no answer", None)
    assert "number" not in grading.get_grader(name).grade("Lima", "Quito").reason
    assert grading.get_grader(name).grade("Lima", "Quito").answer == "Quito"


@pytest.mark.parametrize("name", ["equals", "contains"])
def test_a_gold_without_words_cannot_be_graded(name):
    assert status(name, "...", "...") == "error"


def test_the_first_line_is_the_answer_that_equals_reads():
    assert status("equals", "Lima", "\n---\nLima\nQuestion: and of Ecuador?") == "correct"
    assert status("equals", "Lima", "Quito\nLima") == "wrong"


def test_exact_means_what_it_meant():
    """Locks that ship name it: the characters occur anywhere, and the answer is the first number."""
    assert status("exact", "Al", "Also Lima") == "correct"
    assert status("exact", "Lima", "Quito") == "no answer"
