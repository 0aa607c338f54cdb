"""The commands that draw: the study, its forest plot, its report and its table.

May import: protocol.formats, analysis, figures; markupsafe, matplotlib.
"""
