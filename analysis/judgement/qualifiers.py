"""The qualifiers of a verdict: words that the verdict line carries beside the verdict, each with its reason."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from analysis.judgement import previously_opened
from analysis.rules import sentences, verdict_line
from analysis.rules.verdict_line import REUSED
from analysis.rules.verdicts import INCONCLUSIVE

__all__ = ["REPRODUCTION", "UNINFORMATIVE", "Qualifier", "list_qualifiers"]

REPRODUCTION, UNINFORMATIVE = "REPRODUCTION", "UNINFORMATIVE"


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
        Qualifier(UNINFORMATIVE, _describe_uninformative(judged)),
    ]
    return [qualifier for qualifier in candidates if qualifier.text]


def _describe_uninformative(judged: Mapping[str, Any]) -> str:
    """Say which contrasts below the floor may have kept the rule from deciding; empty if it decided."""
    if verdict_line.rule_verdict(judged) != INCONCLUSIVE:
        return ""
    return sentences.describe_uninformative(judged["contrasts"])
