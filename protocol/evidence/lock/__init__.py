"""The lock of a registration: its fields, the digests that it freezes, the source bundle and the signature.

May import: protocol.evidence.refusals, protocol.evidence.findings, protocol.evidence.bytes.
"""
