"""File formats: canonical JSON documents, strict field declarations, files written once, journals.

May import: protocol.formats.refusals, protocol.formats.findings, protocol.formats.suggestions.
"""
