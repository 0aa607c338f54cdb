"""The graders `equals` and `contains`, of short answers in words and numbers."""

import pytest
from looped import looped

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
    ("-3", "\N{EN DASH}3"),
    ("-3", "$-$3"),
    ("3", "\\boxed{3}"),
    ("2^3", "$2^{3}$"),
    ("Jos\u00e9", "Jose\u0301"),  # NFC and NFD
    ("The Who", "Who"),
    ("a", "A."),
]
CONTAINED_ALONE = [
    ("Lima", "The capital is Lima, of course"),
    ("Lima", "I think\nLima"),
    # numbers
    ("42", "It costs $42."),
    ("3", "The answer \N{EN DASH} 3 \N{EN DASH} is right"),
    ("3", "Answer -- 3"),
    ("3", "It is x=3"),
    ("3", "1 + 2 = 3"),
    ("3", "It is +3"),
    ("3", "No.3 of them"),
    ("3", "There are:\n- 3\n- 4"),
    ("-3", "The sum is - 3"),
    ("-3", "It owes -$3"),
    ("-3", "It is minus 3"),
    ("-3", "It is \N{NON-BREAKING HYPHEN}3"),
    (".5", "It is .5 of them"),
    ("3000", "about 3,000 people"),
    ("3000", "about 3\N{NARROW NO-BREAK SPACE}000 people"),
    ("3000", "about $3{,}000$ people"),
    ("3:45", "at 3:45 in the morning"),
    ("3/4", "it is $\\frac{3}{4}$"),
    ("2^3", "it is $2^{3}$"),
    ("2^3", "it is 2\N{SUPERSCRIPT THREE}"),
    ("3 1/2", "it is 3\N{VULGAR FRACTION ONE HALF}"),
    ("3", "\N{ARABIC-INDIC DIGIT THREE} people"),
    # letters and articles
    ("A", "A is right"),
    ("A", "I choose A because it fits"),
    ("B", "(B) since it fits"),
    ("I", "Option I is right"),
    ("The Who", "They were the Who."),
    ("The dog", "It was a dog."),
    ("The Eiffel Tower", "We saw Eiffel Tower"),
    # possessives and hyphens
    ("Peter", "Peter's house"),
    ("Peter", "Peter\N{RIGHT SINGLE QUOTATION MARK}s house"),
    ("Peter's", "in Peter\N{RIGHT SINGLE QUOTATION MARK}s house"),
    ("Jean-Paul", "It is Jean\N{NON-BREAKING HYPHEN}Paul II"),
    ("eau", "c'est l'eau"),
    ("Lima", "Lima\N{EM DASH}the capital"),
    # scripts
    ("\u5229\u9a6c", "\u7b54\u6848\u662f\u5229\u9a6c\u3002"),  # Chinese, which writes no spaces
    ("Lima", "\u7b54\u6848\u662fLima\u3002"),
    ("3", "\u7b54\u6848\u662f3\uff0c5"),
    ("\u30ea\u30de", "\u7b54\u3048\u306f\u30ea\u30de\u3067\u3059"),  # Japanese
    ("\ub9ac\ub9c8", "\ub2f5\uc740 \ub9ac\ub9c8\uc785\ub2c8\ub2e4"),  # Korean
    ("\u0644\u064a\u0645\u0627", "\u0647\u064a \u0644\u064a\u0645\u0627\u060c \u0646\u0639\u0645"),  # Arabic
    ("\u041b\u0438\u043c\u0430", "\u042d\u0442\u043e \u043b\u0438\u043c\u0430!"),  # Russian
    # markup
    ("Lima", "It is <b>Lima</b>."),
    ("Lima", "It is _Lima_."),
    ("Lima", "It is [Lima](https://example.org/a)"),
    ("Lima", "It is $\\text{Lima}$"),
    ("Peter", "**Peter**'s house"),
    ("-3", "It is -**3**"),
]
WRONG = [
    ("Al", "Also Lima"),
    ("Lima", "Quito"),
    ("Lima", "<think>Lima</think>Quito"),
    # numbers
    ("3", "3.5"),
    ("3", "-3"),
    ("3", "13"),
    ("5", ".5"),
    ("5", "2,5"),
    ("000", "1,000"),
    ("3", "It is \N{EN DASH}3"),
    ("3", "It is \N{FIGURE DASH}3"),
    ("3", "- 3"),
    ("3", "It is $-$3"),
    ("3", "It is minus 3"),
    ("3", "at 3:45"),
    ("45", "at 3:45"),
    ("3", "$2^{3}$"),
    ("3", "2^3"),
    ("2", "2^3"),
    ("3", "2**3"),
    ("32", "3\N{SUPERSCRIPT TWO}"),
    ("31", "3\N{VULGAR FRACTION ONE HALF}"),
    ("3", "3 1/2"),
    ("3", "3/4"),
    ("3", "\\frac{3}{4}"),
    ("3", "3,000"),
    ("3", "3\N{NO-BREAK SPACE}000"),
    ("3", "3 000"),
    ("3", "3 million"),
    ("3", "3e5"),
    ("3", "3 \N{MULTIPLICATION SIGN} 10^5"),
    ("3", "3\N{EN DASH}4"),
    ("3", "2020-3-4"),
    ("3", "3rd"),
    ("3", "3\u4e07"),  # thirty thousand
    # letters, articles, hyphens
    ("C", "C++"),
    ("C", "C#"),
    ("A", "It is a dog"),
    ("A", "A dog it is"),
    ("I", "I think so"),
    ("The Who", "Nobody knows who."),
    ("Paul", "Jean-Paul"),
    ("war", "anti\N{HYPHEN}war"),
    ("Neil", "O'Neil"),
    ("T", "AT&T"),
    ("York New", "New York"),
    # marks and scripts
    ("cafe", "cafe\u0301"),
    ("x", "x\u0304"),  # has no composed form
    ("\u0915", "\u0915\u093f"),  # a vowel sign of Devanagari
    ("\u0644\u064a\u0645\u0627", "\u0644\u064a\u0645\u0627\u0633\u0648\u0644"),  # Limassol in Arabic
    ("\u30a2\u30e1", "\u30a2\u30e1\u30ea\u30ab"),  # America in Japanese
    ("Lima", "[Quito](https://example.org/Lima)"),
]


def status(name, gold, text):
    return grading.get_grader(name).grade(gold, text).status


@looped(("gold", "text"), RIGHT_AND_CONTAINED)
def test_an_answer_that_is_the_gold_is_right_to_both(gold, text):
    assert (status("equals", gold, text), status("contains", gold, text)) == ("correct", "correct")


@looped(("gold", "text"), CONTAINED_ALONE)
def test_an_answer_that_has_the_gold_as_a_word_only_contains_it(gold, text):
    assert (status("equals", gold, text), status("contains", gold, text)) == ("wrong", "correct")


@looped(("gold", "text"), WRONG)
def test_a_part_of_a_word_or_of_a_number_is_another_answer(gold, text):
    assert (status("equals", gold, text), status("contains", gold, text)) == ("wrong", "wrong")


@looped("name", ["equals", "contains"])
@looped("text", ["", " ...\n", "<think>Lima, I would say"])
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
