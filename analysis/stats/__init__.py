"""Statistics: functions take arrays and a generator and return NamedTuples. They know no study, file or rule.

May import: protocol.formats; numpy, scipy, statsmodels.
"""
