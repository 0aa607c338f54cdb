"""Instruments beside the core: each measures, plans or exports something about a study.

May import: nothing.
"""
