"""Messages that several commands print: audits and sizes of slots as text for people; presentation, not evidence.

May import: protocol.evidence, protocol.formats.
"""
