"""Exploratory results of a finished study, reported next to its judgement; none of them decides anything.

May import: protocol.formats, analysis.rules, analysis.stats, analysis.judgement; numpy.
"""
