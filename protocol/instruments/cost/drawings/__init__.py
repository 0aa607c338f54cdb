"""Drawings of measured time and memory, one module for each.

May import: protocol.formats, protocol.instruments.cost, analysis.judgement, analysis.rules, analysis.stats,
figures.drawing; matplotlib.
"""
