"""Keys and values as packed bytes: a file for each family of formats, and the state that stores slots in them.

A format packs the numbers of a vector into a row of bytes, scales included, so that a tensor of rows has the bytes
that are counted and slots move as bytes. `formats` lists them by name, `states` the states that an arm names.

May import: policies, protocol.formats; torch.
"""
