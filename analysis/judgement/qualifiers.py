"""The qualifiers of a verdict: words that the verdict line carries beside the verdict, each with its reason."""

from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["Qualifier", "list_qualifiers"]


class Qualifier(NamedTuple):
    """A word in capitals, e.g. UNINFORMATIVE, and a clause that says why it holds."""

    word: str
    text: str


def list_qualifiers(judged: Mapping[str, Any], lock: Mapping[str, Any]) -> list[Qualifier]:
    """Return the qualifiers of a judgement, the gravest first.

    judged: the judgement with all but its qualifiers and statements. lock: the content of the lock.
    """
    return []
