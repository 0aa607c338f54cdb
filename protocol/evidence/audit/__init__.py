"""The audit of a registration, its status, and how it ends without a verdict.

May import: protocol.formats, protocol.lock, protocol.evidence.
"""
