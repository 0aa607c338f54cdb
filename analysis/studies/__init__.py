"""Sealed studies, read by their documented format: lanes, contrasts, the judgement and its statements.

May import: analysis.output, analysis.rules, analysis.stats; numpy, pandas.
"""
