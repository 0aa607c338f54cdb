"""Plots of the occlusion attribution, one module for each: labels, signals and arms against them, the oracle.

May import: protocol.formats, analysis.anatomy, analysis.judgement, figures.drawing; matplotlib, numpy, pandas.
"""
