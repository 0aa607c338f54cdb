"""What a text says: without the reasoning before it and the marks around it; where it states an answer."""

import re
import unicodedata

__all__ = ["LONGEST", "SHOWN", "plain", "said", "shown", "stated", "unmarked", "words"]

LONGEST = 20_000  # characters of an answer that are read, the first ones
SHOWN = 200  # characters of it that a record shows beside the text
THOUGHT = "</think>"
# <|im_end|>, <|eot_id|> and the like, in DeepSeek's with wide bars, stand for no text wherever they are; the
# others, which a text may mean, are marks at its end alone. The engine records a text with its end mark.
MARK = re.compile("<[|\uff5c][^<>|\uff5c\\s]{1,40}[|\uff5c]>")
ENDS = ("</s>", "<eos>", "<pad>", "<end_of_turn>")
STATED = re.compile(r"\b(?:answer|count|choice|option)\b[\s*]*(?:is|are|:|=)[\s*:]*", re.IGNORECASE)
ARTICLES = frozenset({"a", "an", "the"})


def said(text: str) -> str:
    """What follows the last `</think>`, or all where there is none; nothing where a thought does not end.

    Without special tokens, stripped, at most 20,000 characters. A thought whose opening was part of the
    prompt and which does not end cannot be told from an answer.
    """
    whole = text.rpartition(THOUGHT)[2] if THOUGHT in text else text.partition("<think>")[0]
    return unmarked(whole[: 2 * LONGEST])[:LONGEST].strip()


def unmarked(text: str) -> str:
    """Without special tokens, as `skip_special_tokens` decodes, so far as text shows them."""
    kept = MARK.sub("", text)
    while kept.rstrip().endswith(ENDS):
        kept = kept[: kept.rindex("<")]
    return kept


def plain(text: str) -> str:
    """Compatible characters made one (NFKC), case folded, white space single, punctuation removed."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join("".join(c for c in folded if not _is_punctuation(c)).split())


def words(text: str) -> list[str]:
    """Of the plain text, without the articles, as SQuAD compares (Rajpurkar et al., arXiv:1606.05250)."""
    return [word for word in plain(text).split() if word not in ARTICLES]


def stated(text: str) -> str | None:
    """What follows the last "answer is", "answer:", "count:", "option =" and the like; None without one."""
    ends = [one.end() for one in STATED.finditer(text)]
    return text[ends[-1] :] if ends else None


def shown(text: str) -> str | None:
    """What a record shows as the answer that was read: its beginning; None where there is nothing."""
    return text[:SHOWN] or None


def _is_punctuation(character: str) -> bool:
    """Also the signs that ASCII calls punctuation and Unicode symbols: $ + < = > ^ ` | ~."""
    return unicodedata.category(character)[0] == "P" or character in "$+<=>^`|~"
