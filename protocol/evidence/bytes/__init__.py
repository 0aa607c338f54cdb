"""File formats: canonical JSON documents, strict field declarations, files written once, journals.

May import: protocol.evidence.refusals, protocol.evidence.findings, protocol.evidence.mistakes.
"""
