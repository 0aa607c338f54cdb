"""Building blocks of drawings: the page, rows, lines, printed numbers, shares and traces.

May import: protocol.formats, analysis.exploratory, analysis.rules, analysis.stats, analysis.judgement;
matplotlib, numpy, PIL.
"""
