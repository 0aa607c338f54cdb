"""External evidence, which the folder of a registration cannot show by itself: git history and anchors.

May import: protocol.evidence.refusals, protocol.evidence.findings, protocol.evidence.bytes,
protocol.evidence.lock, protocol.evidence.run.
"""
