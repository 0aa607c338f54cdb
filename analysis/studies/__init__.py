"""Sealed studies, read by their documented format: their lanes, contrasts and failure modes.

May import: analysis.stats, analysis.rules; numpy, pandas.
"""
