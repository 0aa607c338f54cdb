"""Drawings of a judged study, one a file.

May import: analysis.explored, analysis.rules, analysis.stats, analysis.studies, figures.canvas; matplotlib,
numpy.
"""
