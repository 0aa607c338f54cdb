"""What drawings are made of: the page, rows, lines, printed numbers, shares and traces.

May import: analysis.studies; matplotlib, numpy.
"""
