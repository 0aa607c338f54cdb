"""The score of an answer by its words, for graders that differ in what a word is and in how words compare."""

from collections.abc import Callable

from protocol.grading.answer_text import excerpt, extract_answer
from protocol.grading.grade import Grade, make_score

Words = list[str]


def grade_words(
    gold: str, text: str, split: Callable[[str], Words], compare: Callable[[Words, Words], tuple[float, str]]
) -> Grade:
    """Return the score of the answer in a text.

    compare: of the words of gold and answer, the score and what an answer below 1 lacks. A gold answer without
    words gives "error".
    """
    gold_words, answer = split(gold), extract_answer(text)
    if not gold_words:
        return Grade("error", None, "the gold answer has no words")
    answer_words = split(answer)
    if not answer_words:
        return make_score(0, excerpt(answer), "the answer has no words")
    score, lack = compare(gold_words, answer_words)
    return make_score(score, excerpt(answer), "" if score == 1 else lack)
