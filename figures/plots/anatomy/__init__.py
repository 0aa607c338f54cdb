"""Drawings of the anatomy, one a file: labels by occlusion, signals and arms against them, the oracle.

May import: analysis.anatomy, analysis.studies, figures.canvas; matplotlib, numpy, pandas.
"""
