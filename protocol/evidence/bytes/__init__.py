"""Documents as bytes on disk: canonical, read strictly, written once and whole, appended without loss.

May import: protocol.evidence.refusals, protocol.evidence.findings, protocol.evidence.mistakes.
"""
