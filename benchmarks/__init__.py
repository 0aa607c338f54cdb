"""Measurements of the engine, one script a question; what they said is in RESULTS.md.

May import: protocol, policies, splits, analysis, figures; kvpress, numpy, packaging, psutil, scipy, torch,
transformers.
"""
