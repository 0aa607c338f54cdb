"""The report as a page of HTML: values in Python, layout in the templates of jinja2 below templates/.

May import: protocol.formats, analysis.exploratory, analysis.hypotheses, analysis.rules, analysis.stats.methods,
analysis.judgement, figures.drawing, figures.plots; jinja2, markupsafe.
"""
