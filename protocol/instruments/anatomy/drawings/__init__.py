"""Drawings of the occlusion attribution, one module for each, and its section of the report.

May import: protocol.formats, protocol.instruments.anatomy, analysis.judgement, figures.drawing, figures.report_page;
markupsafe, matplotlib, numpy, pandas.
"""
