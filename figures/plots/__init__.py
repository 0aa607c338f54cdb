"""Plots of a judged study, one module for each.

May import: protocol.formats, analysis.exploratory, analysis.rules, analysis.stats, analysis.judgement, figures.drawing;
matplotlib, numpy.
"""
