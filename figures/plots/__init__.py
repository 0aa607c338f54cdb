"""Plots of a judged study, one module for each.

May import: analysis.explored, analysis.rules, analysis.stats, analysis.studies, figures.canvas; matplotlib,
numpy.
"""
