"""Token F1 of an answer, as SQuAD and LongBench score question answering."""

from collections import Counter

from protocol.grading.answer_text import split_words
from protocol.grading.grade import Grade
from protocol.grading.word_grade import grade_words


def grade(gold: str, text: str) -> Grade:
    """Return 2 p r / (p + r) over the words of both as bags (arXiv:1606.05250, section 6.1).

    Departs from LongBench's `qa_f1_score`: a thought before the answer and special tokens are not part of it,
    and punctuation and case follow Unicode. A gold answer without words gives "error".
    """
    return grade_words(gold, text, split_words, _compare)


def _compare(gold_words: list[str], answer_words: list[str]) -> tuple[float, str]:
    common_count = (Counter(answer_words) & Counter(gold_words)).total()
    score = 2 * common_count / (len(answer_words) + len(gold_words))
    return score, f"{common_count} of its {len(gold_words)} words"
