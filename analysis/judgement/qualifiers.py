"""The qualifiers of a verdict: words that the verdict line carries beside the verdict, each with its reason."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from analysis.judgement import previously_opened
from analysis.rules.verdict_line import REUSED

__all__ = ["REPRODUCTION", "Qualifier", "list_qualifiers"]

REPRODUCTION = "REPRODUCTION"


class Qualifier(NamedTuple):
    """A word in capitals, e.g. UNINFORMATIVE, and a clause that says why it holds."""

    word: str
    text: str


def list_qualifiers(judged: Mapping[str, Any], lock: Mapping[str, Any]) -> list[Qualifier]:
    """Return the qualifiers of a judgement, the gravest first.

    judged: the judgement with all but its qualifiers and statements. lock: the content of the lock.
    """
    candidates = [
        Qualifier(REUSED, previously_opened.describe_reuse(lock)),
        Qualifier(REPRODUCTION, previously_opened.describe_reproduction(lock)),
    ]
    return [qualifier for qualifier in candidates if qualifier.text]
