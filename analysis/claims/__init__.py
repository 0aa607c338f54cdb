"""Audits published claims from printed numbers: pure checks, a strict format, a level and a verdict for each
claim.

    kv-prereg claims analysis/published/*.toml

Each check is a function from numbers to a NamedTuple or a number, so that other audits can use it.

May import: protocol.formats, analysis.rules, analysis.stats, analysis.selection; numpy, scipy, statsmodels.
"""

from analysis.claims.family_tests import Best, best_of, count_passing
from analysis.claims.granularity import Fit, counts, fit
from analysis.claims.printed_p import Agreement, check_agreement, correlation_p
from analysis.claims.proportions import Bounds, boschloo, fisher, paired_bounds
from analysis.claims.rounding import Range, rounding_range

__all__ = [
    "Agreement",
    "Best",
    "Bounds",
    "Fit",
    "Range",
    "best_of",
    "boschloo",
    "check_agreement",
    "correlation_p",
    "count_passing",
    "counts",
    "fisher",
    "fit",
    "paired_bounds",
    "rounding_range",
]
