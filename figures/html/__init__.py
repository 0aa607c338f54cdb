"""The report as a page of HTML: its markup, sections, tables and style.

May import: analysis.anatomy, analysis.explored, analysis.hypotheses, analysis.output, analysis.rules,
analysis.stats.methods, analysis.studies, figures.canvas, figures.plots.
"""
