"""The committed rules, one file each, and what tries them before they are locked.

May import: analysis; numpy, pandas.
"""
