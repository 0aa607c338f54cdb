"""Statistics: arrays and a passed generator in, NamedTuple out.

May import: numpy, scipy, statsmodels.
"""
