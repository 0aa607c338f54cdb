"""Walls around what is not trusted: the locked judge of a stranger, programs that a model wrote.

May import: protocol.formats.
"""
