r"""The second grader of mathematical answers: equality after normalizing the spelling.

It follows the convention of MATH's `strip_string` (Hendrycks et al., arXiv:2103.03874) in its own code and
shares nothing with math-verify but the boxed answer that it reads: where the two disagree, someone should
look. It does no algebra, so it is stricter.
"""

import re

from protocol.grading import boxed
from protocol.grading.grade import Grade

NOTHING = re.compile(r"\\!|\\,|\\;|\\:|\\ |\\left(?![a-z])|\\right(?![a-z])|\\?\$|\\?%|\^\\circ|\^\{\\circ\}|~")
WORDS = re.compile(r"\\(?:text|mathrm|textbf|mbox)\{([^{}]*)\}")
UNIT = re.compile(r"(?<=[0-9}])\\(?:text|mathrm|mbox)\{\s*[A-Za-z .^0-9]*\}(?:\^\{?[0-9]\}?)?$")
ROOT = re.compile(r"\\sqrt([0-9A-Za-z])")
FRACTION = re.compile(r"\\[dt]?frac(?:\{([^{}]*)\}|([0-9A-Za-z]))(?:\{([^{}]*)\}|([0-9A-Za-z]))")
MIXED = re.compile(r"(?<=[0-9])(?:\s|~|\\[,;: ])+([0-9]+)/([0-9]+)")
SLASHED = re.compile(r"(-?)([0-9]+)/([0-9]+)")
THOUSANDS = re.compile(r"[0-9]{1,3}(?:,(?:\\!)?[0-9]{3})+")
DECIMAL = re.compile(r"(-?)0*([0-9]*)\.([0-9]+)")


def grade(gold: str, text: str) -> Grade:
    """As protocol.grading.boxed, with both answers normalized."""
    spelled = boxed.grade(gold, text)
    if spelled.status != "wrong" or spelled.answer is None:
        return spelled
    is_equal = normalize_spelling(spelled.answer) == normalize_spelling(boxed.normalize(gold))
    return Grade("correct", spelled.answer, "") if is_equal else spelled


def normalize_spelling(answer: str) -> str:
    r"""Return one spelling for answers that differ in spelling alone.

    Removed: spaces, \left, \right, dollar, percent and degree signs, a unit in \text{} after a number,
    thousands separators, "x =" before a value, a full stop at the end. Rewritten: \dfrac, \tfrac, \frac12 and
    1/2 to \frac{1}{2}, also after an integer (2 1/2 is not 21/2), \sqrt3 to \sqrt{3}, 007 to 7, .50 to 0.5,
    \text{yes} to yes.
    """
    text = answer.replace("\N{MINUS SIGN}", "-").strip().removesuffix(".")
    text = MIXED.sub(r"\\frac{\1}{\2}", text)
    if THOUSANDS.fullmatch(text.strip("$\\ ")):
        text = text.replace(",", "")
    text = UNIT.sub("", NOTHING.sub("", text))
    text = WORDS.sub(r"\1", text)
    text = "".join(text.split())
    name, equals, value = text.partition("=")
    if equals and len(name) <= 2 and "=" not in value:
        text = value
    text = ROOT.sub(r"\\sqrt{\1}", text)
    text = FRACTION.sub(lambda match: rf"\frac{{{match[1] or match[2]}}}{{{match[3] or match[4]}}}", text)
    if slashed := SLASHED.fullmatch(text):
        text = rf"{slashed[1]}\frac{{{slashed[2]}}}{{{slashed[3]}}}"
    if decimal := DECIMAL.fullmatch(text):
        sign, integer, decimals = decimal.groups()
        text = f"{sign}{integer or '0'}.{decimals}".rstrip("0").rstrip(".")
    return re.sub(r"^(-?)0+(?=[0-9])", r"\1", text) if text.lstrip("-").isdigit() else text
