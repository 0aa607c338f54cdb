"""Finished result files, ours and other people's: read, paired by problem, compared; nothing was registered.

May import: analysis.output, analysis.rules, analysis.stats, analysis.studies; matplotlib, numpy, pandas,
zstandard.
"""
