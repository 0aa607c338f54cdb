"""The committed rules, one file each, with their registered fields, verdict, self-test cases and sentences.

A new rule is a new file and a line below. This package imports no statistics.

May import: protocol.formats, analysis.rules, analysis.stats.comparison, analysis.stats.methods.
"""

from collections.abc import Mapping
from types import MappingProxyType

from analysis.rules import branch, equivalent, non_inferior, smallest_lossless, superior
from analysis.rules.rule import Rule

__all__ = ["RULES"]

# name in the registration -> rule
RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "superior": superior.RULE,
        "branch": branch.RULE,
        "equivalent": equivalent.RULE,
        "non_inferior": non_inferior.RULE,
        "smallest_lossless": smallest_lossless.RULE,
    }
)
