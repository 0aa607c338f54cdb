"""The self-test of a rule before it is locked: simulated studies for the judge, and its error rates.

May import: protocol.formats, analysis.rules, analysis.stats, analysis.judgement; numpy, pandas, scipy.
"""
