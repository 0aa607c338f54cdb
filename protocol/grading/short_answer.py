"""Split a short answer into words and numbers, as the graders `equals` and `contains` compare them."""

import re
import unicodedata
from functools import lru_cache

NO_GOLD, NO_WORD = "the gold answer has no word and no number", "the text has no word and no number"

# Scripts that write no space between words, or append particles to them: each character is a word.
UNSPACED = ("CJK", "HIRAGANA", "HANGUL", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")
SCALES = "十百千万萬億亿兆"  # after digits they belong to the number
SAME = str.maketrans(
    {
        **dict.fromkeys("\u2010\u2011\u2012\u2212\u207b\u208b\ufe63\uff0d\u2796", "-"),  # hyphens and minus signs
        **dict.fromkeys("\u2013\u2014", "\u2013"),  # dashes: a minus, a range or punctuation
        **dict.fromkeys("\u2018\u2019\u02bc\u2032\uff07", "'"),
        **dict.fromkeys("\u00d7\u00b7\u22c5", "*"),
        **dict.fromkeys("\u00f7\u2044", "/"),
        **dict.fromkeys("\uff0c\u3001", ", "),
        "\u066b": ".",
        "\u066c": ",",
    }
)
SUPERSCRIPTS = re.compile("[\u2070\u00b9\u00b2\u00b3\u2074-\u2079]+")
FRACTIONS = re.compile("[\u00bc-\u00be\u2150-\u215e]")
REWRITES = tuple(
    (re.compile(pattern, re.IGNORECASE), replacement)
    for pattern, replacement in (
        # Markup of HTML, Markdown and LaTeX.
        (r"<sup>", "^"),
        (r"</?[a-z][^<>\n]*>", ""),
        (r"\]\([^()\s]*\)", "]"),
        (r"\\[dt]?frac\{([^{}]*)\}\{([^{}]*)\}", r"\1/\2"),
        (r"\\(?:times|cdot)(?![a-z])", "*"),
        (r"\\(?:text\w*|math\w*|boxed|fbox|emph|left|right|displaystyle)(?![a-z])|\\[;:! ]", " "),
        (r"\{,\}|\\,", ","),
        (r"\$([-\u2013])\$", r"\1"),
        (r"\$(?! )([^$\n]*[^$ \n])\$(?!\d)", r"\1"),
        (r"([\^_])\{([^{}]*)\}", r"\1\2"),
        # Numbers: operators between digits, words that change a number, separators of thousands, signs.
        (r"(?<=\d)( ?)(\*\*|[-+*/^:\u2013])\1(?=[-.]?\d)", lambda match: match[2].replace("\u2013", "-")),
        (r"(?<=\d) x (?=\d)", "*"),
        (r"(?<![\d*`~])[*`~]+|[*`~]+(?![\d*`~])|(?<![^\W_])_+|_+(?![^\W_])", ""),
        (r"(?<=\d) (?=\d+/\d)", "+"),
        (r"\b(?:minus|negative) +(?=[.$]?\d)", "-"),
        (r"(?<![\w)\]])\u2013(?=[$.]*\d)", "-"),
        (r"\u2013", " "),
        (
            r"(?<![\w.,])([1-9]\d{0,2})([,' ])(\d{3}(?:\2\d{3})*)(?!\d|\2\d)",
            lambda match: match[1] + match[3].replace(match[2], ""),
        ),
        (r"(?<=\d)[ -](hundred|thousand|million|billion|trillion|dozen)\b", r"\1"),
        (r"(?<![\w)\]-])-[ $(]*(?=[$.]*\d)", "-"),
        # Possessives and elisions.
        (r"(?<=\w)'s\b", ""),
        (r"\b(l|d|qu)'(?=\w)", r"\1 "),
    )
)
BULLET = re.compile(r"^[ \t]*[-+\u2013\u2022][ \t]+", re.MULTILINE)
# Over the classes of characters: letters with marks (a), digits (0), words of one character (u), scales (k).
TOKEN = re.compile(
    r"(?:(?<![a0u)\].-])-(?=\.?0))?(?:(?<![a0.])\.(?=0))?"
    r"[a0_]+(?:(?:[-^+&@']|(?<=0)[-^+*.,:/]{1,3})(?=[a0])[a0_]+)*(?:(?<=0)k+|[+#]+(?![a0]))?"
    r"|[uk%c]|\$(?=-?\.?0)"
)


def split_answer(text: str) -> tuple[str, ...]:
    """Return the words and numbers of a text in order, folded in case (Unicode NFKC), without punctuation and markup.

    A number is one token with its sign, decimals, exponent, and with what a `:`, `/`, `-` or operator joins to it;
    separators of thousands are removed. A word is one token with its hyphens and marks, without a possessive 's.
    A script without spaces gives a token for each character. Empty if the text has no letter and no digit.
    """
    text = text.translate(SAME)
    text = SUPERSCRIPTS.sub(r"^\g<0>", text)
    text = unicodedata.normalize("NFKC", FRACTIONS.sub(r" \g<0>", text)).replace("\u2044", "/")
    text = "".join(character for character in text if unicodedata.category(character) != "Cf")
    text = "".join(str(unicodedata.decimal(character, character)) for character in text)
    if "\n" in text:
        text = BULLET.sub("", text)
    for pattern, replacement in REWRITES:
        text = pattern.sub(replacement, text)
    classes = "".join(map(_classify, text))
    tokens = (text[match.start() : match.end()] for match in TOKEN.finditer(classes))
    folded = tuple(unicodedata.normalize("NFKC", token.casefold()) for token in tokens)
    return folded if any(character.isalnum() for token in folded for character in token) else ()


@lru_cache(maxsize=4096)
def _classify(character: str) -> str:
    """Return the class of a character in TOKEN; a sign of ASCII is its own."""
    category = unicodedata.category(character)
    if character in SCALES:
        return "k"
    if unicodedata.name(character, "").startswith(UNSPACED):
        return "u"
    if character.isdigit():
        return "0"
    if category[0] in "LMN":
        return "a"
    if category == "Sc" and character != "$":
        return "c"
    return character if character.isascii() else " "
