"""Audits published claims from printed numbers: pure checks, a strict format, a level and a verdict for each
claim.

    kv-prereg claims analysis/published/*.toml

Each check is a function from numbers to a NamedTuple or a number, so that other audits can use it.

May import: analysis.rules, analysis.stats, analysis.output, analysis.selection; numpy, scipy, statsmodels.
"""

from analysis.claims.granularity import Fit, counts, fit
from analysis.claims.printed_p import Agreement, agreement, correlation_p
from analysis.claims.proportions import Bounds, boschloo, fisher, paired_bounds
from analysis.claims.rounding import Range, rounding
from analysis.claims.several import Best, best_of, passing

__all__ = [
    "Agreement",
    "Best",
    "Bounds",
    "Fit",
    "Range",
    "agreement",
    "best_of",
    "boschloo",
    "correlation_p",
    "counts",
    "fisher",
    "fit",
    "paired_bounds",
    "passing",
    "rounding",
]
