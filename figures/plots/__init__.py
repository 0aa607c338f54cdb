"""Drawings of a judged study, one a file.

May import: analysis.rules, analysis.stats, analysis.studies, figures.canvas; matplotlib, numpy.
"""
