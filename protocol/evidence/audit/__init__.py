"""The audit of a registration, its status, and how it ends without a verdict.

May import: protocol.formats.refusals, protocol.formats.findings, protocol.formats,
protocol.lock, protocol.evidence.run, protocol.evidence.invariants, protocol.evidence.external.
"""
