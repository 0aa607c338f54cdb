"""Exact match of a value in text that may hold anything."""

from looped import looped

from protocol.grading.exact import LONGEST, grade

LONG = "x" * LONGEST

CASES = [  # gold, text, status, answer
    ("7492", " 7492.", "correct", "7492"),
    ("7492", "7492<|im_end|>", "correct", "7492"),
    ("7492", "The code is 7492, I think", "correct", "7492"),
    ("7492", "It is 7 or rather 7492", "correct", "7"),
    ("7492", "17492", "correct", "17492"),  # a substring, as the paper counts
    ("7492", " 7493.", "wrong", "7493"),
    ("7492", " 749", "wrong", "749"),
    ("7492", "7,492", "wrong", "7,492"),
    ("7492", "7 4 9 2", "wrong", "7"),
    ("7492", "3.14 is no code", "wrong", "3.14"),
    ("7492", "", "no answer", None),
    ("7492", " I do not know.", "no answer", None),
    ("7492", "\u0667\u0664\u0669\u0662", "no answer", None),  # the same digits in Arabic script
    ("7492", "__import__('os').abort()", "no answer", None),
    ("7492", "\x00\ud800 7492", "correct", "7492"),
    ("7492", LONG + "7492", "no answer", None),
    ("7492", "7492" + LONG, "correct", "7492"),
    ("", "7492", "error", None),
]


@looped(("gold", "text", "status", "answer"), CASES)
def test_a_text_is_graded_by_the_value_in_it(gold, text, status, answer):
    found = grade(gold, text)
    assert (found.status, found.answer) == (status, answer)


@looped(("gold", "text", "status", "answer"), CASES)
def test_a_grade_other_than_a_plain_correct_one_says_why(gold, text, status, answer):
    assert bool(grade(gold, text).reason) == (status != "correct" or len(text) > LONGEST)


def test_a_text_that_was_cut_is_said_to_be_cut():
    assert grade("7492", LONG + "7492").reason == "only the first 20000 of 20004 characters were read"
