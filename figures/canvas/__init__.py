"""What drawings are made of: the page, rows, lines, printed numbers, shares and traces.

May import: analysis.output, analysis.rules, analysis.stats.methods, analysis.studies; matplotlib, numpy.
"""
