"""Statistics: arrays and a passed generator in, NamedTuple out. No study, no file and no rule is known here.

May import: numpy, scipy, statsmodels.
"""
