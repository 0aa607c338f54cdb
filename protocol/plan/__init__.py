"""The plan of an experiment: protocol.toml as frozen values, and its grid of cells.

May import: policies, analysis.rules, analysis.stats.methods, protocol.formats, protocol.evidence, protocol.presses,
protocol.tasks, protocol.grading.
"""
