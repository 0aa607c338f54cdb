"""Drawings of measurements that belong to no study.

May import: figures, analysis.output; matplotlib.
"""
