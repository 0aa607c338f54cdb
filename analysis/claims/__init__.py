"""Audits published claims from printed numbers: pure checks, a strict format, a level and a verdict for each claim.

    kv-prereg claims analysis/published/*.toml

Each check is a function from numbers to a NamedTuple or a number, so that other audits can use it.

May import: protocol.formats, analysis.rules, analysis.stats, analysis.selection; numpy, scipy, statsmodels.
"""
