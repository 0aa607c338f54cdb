r"""The last \boxed{...} by matching braces, and the characters that count as the same."""

import pytest
from looped import looped

from protocol.grading import boxed, spelling
from protocol.grading.boxed import LONGEST, last_box

BOXES = [  # text, what the last box holds
    (r"\boxed{8}", "8"),
    (r"so \boxed{3}, no, \boxed{4}.", "4"),
    (r"\boxed{\frac{1}{\sqrt{2}}} ends", r"\frac{1}{\sqrt{2}}"),
    (r"\boxed{\{1,2\}}", r"\{1,2\}"),
    (r"\boxed{\left\{ x \right.}", r"\left\{ x \right."),  # an escaped brace needs no partner
    (r"\boxed{a\\}", r"a\\"),  # an escaped backslash, then the end
    (r"\boxed {7}", "7"),
    (r"\boxed{\boxed{5}}", "5"),
    ("\\boxed{two\nlines}", "two\nlines"),
    (r"\boxed{5}, as asked \boxed it is", "5"),
    (r"\boxed{}", ""),
    (r"\boxed{3} and then \boxed{4", None),  # cut off within its answer
    (r"\boxed{1}} {", "1"),
    (r"\boxed{{1}", None),
    (r"\boxed 5", None),
    (r"\fbox{5}", None),
    ("the answer is 42", None),
    ("", None),
]


@looped(("text", "expected"), BOXES)
def test_the_last_box_is_read_by_matching_braces(text, expected):
    assert last_box(text) == expected


GRADES = [  # gold, text, status, answer
    ("8", r"8 \boxed{8}<|im_end|>", "correct", "8"),
    ("8", r"\boxed{ 8 }", "correct", "8"),
    ("8", "\\boxed{\N{FULLWIDTH DIGIT EIGHT}}", "correct", "8"),
    ("8", "\\boxed{\N{ZERO WIDTH SPACE}8}", "correct", "8"),
    ("52", "\\boxed{5\N{SUPERSCRIPT TWO}}", "wrong", "5^{2}"),  # NFKC alone would make 52 of it
    ("10^{12}", "\\boxed{10\N{SUPERSCRIPT ONE}\N{SUPERSCRIPT TWO}}", "correct", "10^{12}"),
    ("x_{1}", "\\boxed{x\N{SUBSCRIPT ONE}}", "correct", "x_{1}"),
    (r"\frac{1}{2}", "\\boxed{\N{VULGAR FRACTION ONE HALF}}", "correct", r"\frac{1}{2}"),
    (r"\frac{21}{2}", "\\boxed{2\N{VULGAR FRACTION ONE HALF}}", "wrong", r"2\frac{1}{2}"),
    (r"2\frac{1}{2}", "\\boxed{2\N{FRACTION NUMERATOR ONE}2}", "correct", r"2\frac{1}{2}"),
    (r"\frac{21}{2}", "\\boxed{21\N{FRACTION SLASH}2}", "correct", r"\frac{21}{2}"),
    (r"\frac{1}{22}", "\\boxed{\N{VULGAR FRACTION ONE HALF}2}", "wrong", r"\frac{1}{2}2"),
    ("8", r"\boxed{8.0}", "wrong", "8.0"),
    ("8", r"\boxed{9}", "wrong", "9"),
    ("8", "8", "no answer", None),
    ("8", r"\boxed{8", "no answer", None),
    ("8", r"\boxed{ }", "no answer", None),
    ("8", "", "no answer", None),
    ("8", r"\boxed{8}" + "x" * LONGEST, "no answer", None),
    ("8", "x" * LONGEST + r"\boxed{8}", "correct", "8"),
    ("", r"\boxed{8}", "error", None),
    (" ", r"\boxed{ }", "error", None),
]


@looped(("gold", "text", "status", "answer"), GRADES)
def test_a_text_is_graded_by_its_last_box(gold, text, status, answer):
    found = boxed.grade(gold, text)
    assert (found.status, found.answer) == (status, answer)
    assert bool(found.reason) == (status != "correct")


SPELLED = [  # gold, an answer that is spelled otherwise, is it the same?
    (r"\frac{1}{2}", r"\dfrac{1}{2}", True),
    (r"\frac{1}{2}", r"\frac12", True),
    (r"\frac{1}{2}", "1/2", True),
    (r"-\frac{1}{2}", "-1/2", True),
    (r"\frac{1}{2}", "0.5", False),  # no arithmetic
    (r"3\sqrt{2}", r"3\sqrt2", True),
    (r"\left( 3, \frac{\pi}{2} \right)", r"(3,\frac{\pi}{2})", True),
    ("90^\\circ", "90", True),
    ("10\\%", "10", True),
    ("10", r"\$10", True),
    (r"\text{Evelyn}", "Evelyn", True),
    ("5", "x = 5", True),
    ("x=5", "5", True),
    ("a+b=5", "5", False),
    ("5", r"5\text{ cm}^2", True),
    ("1{,}000".replace("{,}", ","), "1000", True),
    ("1,2", "12", False),
    ("025", "25", True),
    ("0", "000", True),
    ("0.5", ".50", True),
    ("7", "7.", True),
    ("-3", "\N{MINUS SIGN}3", True),
    (r"2\frac{1}{2}", "2\N{VULGAR FRACTION ONE HALF}", True),
    (r"2\frac{1}{2}", "2 1/2", True),
    (r"-2\frac{1}{2}", "-2\\,1/2", True),
    (r"\frac{21}{2}", "2\N{VULGAR FRACTION ONE HALF}", False),
    (r"\frac{21}{2}", "2 1/2", False),
    (r"\frac{21}{2}", "2~1/2", False),
    (r"\frac{5}{2}", "2 1/2", False),  # no arithmetic
    ("2", "3", False),
    ("1,2", "2,1", False),
]


@looped(("gold", "answer", "same"), SPELLED)
def test_the_second_grader_sees_through_spelling_and_not_through_algebra(gold, answer, same):
    assert spelling.grade(gold, rf"\boxed{{{answer}}}").status == ("correct" if same else "wrong")


@pytest.mark.parametrize("text", ["8", r"\boxed{8", r"\boxed{}"])
def test_the_second_grader_has_no_answer_where_the_first_has_none(text):
    assert spelling.grade("8", text) == boxed.grade("8", text)
