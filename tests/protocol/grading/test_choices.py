"""The last stated choice, and the traps on the way to it."""

from looped import looped

from protocol.grading import choice

LETTERS = [
    ("B", "B"),
    ("(B)", "B"),
    ("**B**", "B"),
    ("b", "B"),
    ("a", "A"),
    ("B<|im_end|>", "B"),
    ("<think>C, surely</think>\n\nB", "B"),
    ("The answer is B.", "B"),
    ("The answer is (c).", "C"),
    ("The answer is (C) because B is wrong", "C"),
    ("Answer: **C**\nD is wrong", "C"),
    ("The answer is A. No: the answer is D.", "D"),
    ("Choice: D) x", "D"),
    ("the answer is\n\nB", "B"),
    ("The answer is not A, it is C", "C"),
    ("I think it is B, not A", "B"),
    ("not A but B", "B"),
    ("A good answer is B", "B"),
    ("I would say that a plan is D", "D"),
    ("Both A and B are right, so D.", "D"),
    ("A. Paris is wrong.\nB. London is right.", "B"),
    (r"\boxed{C}, not the answer is B", "C"),
    (r"The answer is \boxed{\text{C}}", "C"),
    ("Answer: none of them", None),
    ("A B C D", None),  # all of them are named, and none is chosen
    ("A\nB\nC\nD", None),
    ("(A) (B)", None),
    (r"\boxed{A, B}", None),
    ("B or C", None),
    ("The answer is A, B, C or D", None),
    ("The answer is (B) or (C).", None),
    ("Answer: B/C", None),
    ("Answer: B and C", None),
    ("Answer: neither A nor B", None),
    ("The answer isn't B.", None),
    ("The answer is B and A is wrong", "B"),
    ("The answer is A or B. The answer is C.", "C"),
    ("A or B are wrong, so D", "D"),
    ("It isn't B, it is C.", "C"),
    ("It isn\N{RIGHT SINGLE QUOTATION MARK}t B, it is C.", "C"),
    ("The answer isn\N{RIGHT SINGLE QUOTATION MARK}t A. B", "B"),
    ("A rather than B", "A"),
    ("The answer is A rather than B", "A"),
    ("A is right, B is wrong", "A"),
    ("B is wrong, A is right.", "A"),
    ("A is correct and B is not.", "A"),
    ("A instead of (B)", "A"),
    ("A over B", "A"),
    ("A is better than B", "A"),
    ("B is better than A", "B"),
    ("B, as opposed to A", "B"),
    ("B, unlike A and C", "B"),
    ("I pick D, never B", "D"),
    ("D is true, A is false", "D"),
    ("B doesn\N{RIGHT SINGLE QUOTATION MARK}t fit; C does.", "C"),
    ("Rule out A. Rule out B. C remains.", "C"),
    ("Eliminate A and B; choose C", "C"),
    ("A: no. B: no. C: yes.", "C"),
    ("A) wrong\nB) right", "B"),
    ("The answer cannot be D; it must be A", "A"),
    ("A child chose B", "B"),
    ("B, since option A is too small.", "B"),
    ("none of A, B, C", None),
    ("Neither A nor B", None),
    ("A is wrong and B is wrong", None),
    ("ABBA", None),
    ("I cannot say.", None),
    ("", None),
    ("<think>The answer is B", None),  # a thought that does not end says nothing
]


@looped(("text", "stated"), LETTERS)
def test_the_last_stated_letter_is_the_choice(text, stated):
    for gold in "ABCD":
        status = "no answer" if stated is None else "correct" if gold == stated else "wrong"
        assert choice.grade(gold, text)[:2] == (status, stated)
        assert choice.grade(gold.lower(), text).status == status


WORDS = [
    ("yes", "Yes.", "correct"),
    ("yes", "no", "wrong"),
    ("yes", "The answer is yes, as the text says. No doubt.", "wrong"),  # "yes, as the text says"
    ("yes", "The answer is yes. No doubt.", "correct"),
    ("yes", r"\boxed{yes} and no", "correct"),
    ("New York", "It could be Paris.\nnew york", "correct"),
    ("New York", "York", "wrong"),
    ("New York", "Answer: **New York**", "correct"),
    ("yes", "", "no answer"),
    ("...", "yes", "error"),
]


@looped(("gold", "text", "status"), WORDS)
def test_a_choice_that_is_no_letter_is_compared_whole(gold, text, status):
    assert choice.grade(gold, text).status == status


CLASSES = ("Description", "Description of a person", "Food", "Other location", "City")
STATED = [
    ("Food", "Food"),
    ("description of a PERSON", "Description of a person"),
    ("Not Food but Description", "Description"),
    ("The answer is City. Food comes next.", "City"),
    ("Foods", None),
    ("", None),
]


@looped(("text", "stated"), STATED)
def test_the_class_that_stands_last_is_stated_and_the_longest_name_is_meant(text, stated):
    assert choice.find_last_class(text, CLASSES) == stated


def test_without_classes_none_is_stated():
    assert choice.find_last_class("Food", ()) is None


@looped("text", ["A " * 10**4, "((" * 10**4, "answer is " * 10**4, "not " * 10**4, "answer" + " " * 10**5])
def test_a_hostile_text_is_read_to_an_end(text):
    assert choice.grade("B", text).status in ("wrong", "no answer")
