"""The commands that judge, and the rooms that they are made of; nothing here imports the protocol.

May import: analysis; numpy, pandas, scipy.
"""
