"""Judging sealed studies, read by their documented format: lanes, contrasts, judgement and statements.

May import: analysis.output, analysis.rules, analysis.stats; numpy, pandas.
"""
