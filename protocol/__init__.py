"""The commands, one file each, and what they share; every room below is for them.

May import: protocol, policies, splits, analysis, figures; torch, transformers.
"""
