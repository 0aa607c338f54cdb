"""The report as a page of HTML: its markup, sections, tables and style.

May import: protocol.formats, analysis.anatomy, analysis.exploratory, analysis.hypotheses, analysis.rules,
analysis.stats.methods, analysis.judgement, figures.drawing, figures.plots.
"""
