"""The commands that read a study without torch, one file each; nothing here imports the protocol.

May import: analysis; numpy, pandas, scipy.
"""
