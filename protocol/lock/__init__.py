"""The lock of a registration: its fields, the digests that it freezes, the source bundle and the signature.

May import: protocol.formats.
"""
