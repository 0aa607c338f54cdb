"""Exploratory results of a finished study, reported next to its judgement; none of them decides anything.

May import: analysis.output, analysis.rules, analysis.stats, analysis.judgement; numpy.
"""
