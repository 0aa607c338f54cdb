"""Extract the answer from a text: without the thought before it and special tokens around it, and the part
where it states an answer.
"""

import re
import unicodedata

MAX_CHARACTERS = 20_000  # characters read, from the beginning of an answer
EXCERPT_CHARACTERS = 200  # characters of it that a record shows next to the text
THOUGHT_END = "</think>"
# <|im_end|>, <|eot_id|> and the like, in DeepSeek's with wide bars, are special tokens anywhere; the
# others, which a text may quote, only at its end. The engine records a text with its end mark.
MARK = re.compile("<[|\uff5c][^<>|\uff5c\\s]{1,40}[|\uff5c]>")
END_MARKS = ("</s>", "<eos>", "<pad>", "<end_of_turn>")
STATED = re.compile(r"\b(?:answer|count|choice|option)\b[\s*]*(?:is|are|:|=)[\s*:]*", re.IGNORECASE)
ARTICLES = frozenset({"a", "an", "the"})


def extract_answer(text: str) -> str:
    """Return what follows the thought, without special tokens, stripped, at most 20,000 characters."""
    return strip_special_tokens(skip_thought(text)[: 2 * MAX_CHARACTERS])[:MAX_CHARACTERS].strip()


def skip_thought(text: str) -> str:
    """Return what follows the last `</think>`, or everything if there is none; empty if a thought does not end.

    A thought that was opened in the prompt and does not end cannot be distinguished from an answer.
    """
    return text.rpartition(THOUGHT_END)[2] if THOUGHT_END in text else text.partition("<think>")[0]


def strip_special_tokens(text: str) -> str:
    """Remove special tokens, as `skip_special_tokens` does in decoding, as far as the text shows them."""
    stripped = MARK.sub("", text)
    while stripped.rstrip().endswith(END_MARKS):
        stripped = stripped[: stripped.rindex("<")]
    return stripped


def normalize(text: str) -> str:
    """Normalize a text: compatible characters unified (NFKC), case folded, white space single, punctuation
    removed.
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join("".join(c for c in folded if not _is_punctuation(c)).split())


def split_words(text: str) -> list[str]:
    """Return the words of the normalized text without articles, as SQuAD compares (Rajpurkar et al.,
    arXiv:1606.05250).
    """
    return [word for word in normalize(text).split() if word not in ARTICLES]


def stated_answer(text: str) -> str | None:
    """Return what follows the last "answer is", "answer:", "count:", "option =" and the like; None without
    one.
    """
    ends = [match.end() for match in STATED.finditer(text)]
    return text[ends[-1] :] if ends else None


def excerpt(text: str) -> str | None:
    """Return the beginning of an answer, as a record shows it; None if it is empty."""
    return text[:EXCERPT_CHARACTERS] or None


def _is_punctuation(character: str) -> bool:
    """Whether it is punctuation, including the signs that Unicode calls symbols: $ + < = > ^ ` | ~."""
    return unicodedata.category(character)[0] == "P" or character in "$+<=>^`|~"
