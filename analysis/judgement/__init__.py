"""Judging sealed studies, read by their documented format: lanes, contrasts, judgement and statements.

May import: protocol.formats, analysis.rules, analysis.stats; numpy, pandas.
"""
