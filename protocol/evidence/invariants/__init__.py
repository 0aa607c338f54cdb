"""The invariants: relations between the fields of records that hold in every honest study.

May import: protocol.formats, protocol.lock, protocol.evidence.
"""
