"""What a folder cannot show by itself: the history that git keeps of it, and proofs by outside witnesses.

May import: protocol.evidence.refusals, protocol.evidence.findings, protocol.evidence.bytes,
protocol.evidence.lock, protocol.evidence.run.
"""
