"""What happened, in order: the ledger, the claim, the door to held-out problems, records, seal and verdict.

May import: protocol.evidence.refusals, protocol.evidence.findings, protocol.evidence.bytes,
protocol.evidence.lock.
"""
