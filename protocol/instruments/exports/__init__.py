"""Registrations and verdicts in the formats of others: Croissant, in-toto, OSF.

May import: analysis.rules, protocol.formats, protocol.lock, protocol.evidence, protocol.messages.
"""
