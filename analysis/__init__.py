"""The commands that read a study without torch, one file each; they do not import the protocol.

May import: protocol.formats, analysis; numpy, pandas, scipy.
"""
