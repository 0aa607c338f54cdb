"""Drawings of measurements that belong to no study.

May import: analysis.output.command, figures; matplotlib.
"""
