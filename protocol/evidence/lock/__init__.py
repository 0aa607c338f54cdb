"""What is frozen, from the bytes on disk: the lock, the closure that it covers, its bundle and its signature.

May import: protocol.evidence.refusals, protocol.evidence.findings, protocol.evidence.bytes.
"""
