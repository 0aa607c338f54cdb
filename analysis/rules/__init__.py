"""The committed rules, one file each, with their registered fields, verdict, self-test cases and sentences.

A new rule is a new file and a line below. This package imports no statistics.

May import: protocol.formats, analysis.rules, analysis.stats.comparison, analysis.stats.methods.
"""

from analysis.rules.rule import Rule
from protocol.formats.registry import Registry, loader

# name in the registration -> rule
RULES = Registry[Rule](
    {
        "superior": loader("analysis.rules.superior:RULE"),
        "branch": loader("analysis.rules.branch:RULE"),
        "equivalent": loader("analysis.rules.equivalent:RULE"),
        "non_inferior": loader("analysis.rules.non_inferior:RULE"),
        "smallest_lossless": loader("analysis.rules.smallest_lossless:RULE"),
    }
)
