"""Token F1 of an answer, as SQuAD and LongBench score question answering."""

from collections import Counter

from protocol.grading.answer_text import excerpt, extract_answer, split_words
from protocol.grading.grade import Grade, make_score

__all__ = ["grade"]


def grade(gold: str, text: str) -> Grade:
    """Return 2 p r / (p + r) over the words of both as bags (arXiv:1606.05250, section 6.1).

    Departs from LongBench's `qa_f1_score`: a thought before the answer and special tokens are not part of it,
    and punctuation and case follow Unicode. A gold answer without words gives "error".
    """
    gold_words, answer = split_words(gold), extract_answer(text)
    if not gold_words:
        return Grade("error", None, "the gold answer has no words")
    answer_words = split_words(answer)
    if not answer_words:
        return make_score(0, excerpt(answer), "the answer has no words")
    common_count = (Counter(answer_words) & Counter(gold_words)).total()
    score = 2 * common_count / (len(answer_words) + len(gold_words))
    return make_score(score, excerpt(answer), "" if score == 1 else f"{common_count} of its {len(gold_words)} words")
