"""The evidence of a run, in order: ledger, claim, held-out guard, records, seal and verdict.

May import: protocol.evidence.refusals, protocol.evidence.findings, protocol.evidence.bytes,
protocol.evidence.lock.
"""
