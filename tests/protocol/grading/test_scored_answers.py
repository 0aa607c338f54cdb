"""Token F1, ROUGE-L and the similarity of code: by hand, by a plain loop and at their limits."""

import random

from looped import looped

from protocol.grading import code, common_subsequence, f1, number, rouge
from protocol.grading.answer_text import MAX_CHARACTERS, extract_answer, strip_special_tokens

F1 = [  # gold, text, score: 2 * same / (words of both)
    ("Paris", "Paris", "1.000000"),
    ("Paris", "It is Paris.", "0.500000"),  # 2 * 1 / (1 + 3)
    ("the cat sat", "A cat SAT!", "1.000000"),  # articles, case and punctuation are no difference
    ("a b b", "b b b", "0.800000"),  # b b of {b, b} and {b, b, b}: 2 * 2 / (2 + 3); "a" is an article
    ("Paris", "<think>Rome, Rome, Rome</think>Paris<|im_end|>", "1.000000"),
    ("Paris", "<think>Rome Paris", "0.000000"),
    ("Paris", "", "0.000000"),
    ("Paris", "the", "0.000000"),
    ("caf\u00e9 \u201cbar\u201d", "cafe\u0301 bar", "1.000000"),  # one character or two, quotes or none
]


@looped(("gold", "text", "score"), F1)
def test_token_f1_is_that_of_the_words_that_both_have(gold, text, score):
    grade = f1.grade(gold, text)
    assert (grade.status, grade.score) == ("scored", score)
    assert (grade.reason == "") == (score == "1.000000")


def test_a_gold_answer_without_words_is_an_error_and_no_score():
    assert f1.grade("the", "the").status == "error"
    assert rouge.grade("...", "x").status == "error"
    assert code.grade("```\n```", "x").status == "error"


def plain_loop(a, b):
    """The textbook table."""
    row = [0] * (len(b) + 1)
    for x in a:
        above = row
        row = [0]
        for place, y in enumerate(b):
            row.append(above[place] + 1 if x == y else max(above[place + 1], row[-1]))
    return row[-1]


def test_the_longest_common_subsequence_is_that_of_the_textbook_table():
    source = random.Random(1)
    for _ in range(200):
        a, b = (source.choices("abcd", k=source.randrange(9)) for _ in range(2))
        assert common_subsequence.longest_common(a, b) == plain_loop(a, b)


ROUGE = [
    ("police killed the gunman", "police kill the gunman", "0.750000"),  # Lin 2004, section 3.1: 3/4 and 3/4
    ("police killed the gunman", "the gunman kill police", "0.500000"),  # and 2/4
    ("a b c", "a x b x c", "0.750000"),  # 2 * 3 / (3 + 5)
    ("a b c", "c b a", "0.333333"),
    ("a b c", "", "0.000000"),
]


@looped(("gold", "text", "score"), ROUGE)
def test_rouge_l_is_f1_of_the_longest_common_subsequence(gold, text, score):
    assert rouge.grade(gold, text).score == score


def test_two_identical_texts_without_a_full_stop_score_one_however_long():
    text = " ".join(f"word{place}" for place in range(1200))
    assert rouge.grade(text, text)[2:] == ("", "1.000000")


def test_no_more_words_than_that_are_compared():
    text = " ".join(["a"] * (rouge.MAX_WORDS + 1))
    assert len(rouge.split_words(text)) == rouge.MAX_WORDS


CODE = [  # 2 * common / (characters of both)
    ("x = 1", "x = 1\ny = 2", "1.000000"),
    ("    x = 1", "x = 1", "1.000000"),
    ("x = 1", "x = 2", "0.800000"),  # 2 * 4 / (5 + 5)
    ("x = 1  # one", "x = 1  # one", "1.000000"),  # LongBench passes over a line with "#"
    ('#include "a.h"', '#include "a.h"', "1.000000"),
    ("u = 'http://x'", "u = 'http://x'", "1.000000"),
    ("x = 1", "# first\n\nx = 1", "1.000000"),
    ("# first", "# first\nx = 1", "1.000000"),
    ("x = 1", "Here it is:\n```python\nx = 1\n```\nDone.", "1.000000"),
    ("x = 1\ny = 2", "x = 1\ny = 2\nz = 3", "1.000000"),
    ("x = 1", "<think>y</think>\nx = 1<|endoftext|>", "1.000000"),
    ("x = 1", "\n\n", "0.000000"),
]


@looped(("gold", "text", "score"), CODE)
def test_the_first_lines_of_code_are_compared_character_by_character(gold, text, score):
    assert code.grade(gold, text).score == score


NUMBERS = [
    ("7", "7"),
    ("07.", "7"),
    ("Paragraph 7", "7"),
    ("**12**, since 3 of 15 are copies", "12"),
    ("There are 15 paragraphs. The final answer is 12 of 15.", "12"),
    ("Of 15 paragraphs 3 are copies, 12 are not", "12"),
    ("It is from Paragraph 7, of 30", "7"),
    ("none", None),
    ("", None),
]


@looped(("text", "stated"), NUMBERS)
def test_the_number_that_a_text_states_is_not_any_number_of_it(text, stated):
    assert number.extract_number(text) == stated


SAID = [
    (" Paris</s></s>\n", "Paris"),
    ("Paris<\uff5cend\u2581of\u2581sentence\uff5c>", "Paris"),
    ("a <|x|> b", "a  b"),
    ("</think>one</think> two", "two"),
    ("<think>never", ""),
    ("a < b </s> c", "a < b </s> c"),
]


@looped(("text", "answer"), SAID)
def test_thoughts_and_marks_are_not_what_a_text_says(text, answer):
    assert extract_answer(text) == answer


def test_a_thought_is_kept_where_only_marks_are_taken():
    assert strip_special_tokens("<think>x</think> y<|im_end|>") == "<think>x</think> y"


@looped("text", ["</s>" * 10**5, "<|" * 10**5, " " * 10**6, "<think>" * 10**5 + "</think>" * 10**5])
def test_a_hostile_text_is_graded_to_an_end(text):
    assert len(extract_answer(text)) <= MAX_CHARACTERS
    for one in (f1, rouge, code):
        assert one.grade("x", text).status == "scored"
