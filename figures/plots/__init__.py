"""Drawings of a judged study, one a file.

May import: analysis.stats, analysis.studies, figures.canvas; matplotlib, numpy.
"""
