"""The report as a page of HTML: its markup, sections, tables and style.

May import: analysis.anatomy, analysis.exploratory, analysis.hypotheses, analysis.output, analysis.rules,
analysis.stats.methods, analysis.judgement, figures.drawing, figures.plots.
"""
