"""What tries a rule before it is locked: made-up studies that the judge is run on, and how often it errs.

May import: analysis.output, analysis.rules, analysis.stats, analysis.studies; numpy, pandas, scipy.
"""
