"""The audit of a registration, its status, and how it ends without a verdict.

May import: protocol.evidence.refusals, protocol.evidence.findings, protocol.evidence.bytes,
protocol.evidence.lock, protocol.evidence.run, protocol.evidence.relations, protocol.evidence.outside.
"""
