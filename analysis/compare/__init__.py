"""Comparison of finished result files, of this and other projects: read, paired by problem, compared. Nothing
was registered.

May import: protocol.formats, analysis.rules, analysis.stats, analysis.judgement; matplotlib, numpy, pandas, zstandard.
"""
