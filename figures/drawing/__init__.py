"""Building blocks of drawings: the page, rows, lines, printed numbers, shares and traces.

May import: analysis.anatomy, analysis.exploratory, analysis.output, analysis.rules, analysis.stats,
analysis.judgement; matplotlib, numpy.
"""
