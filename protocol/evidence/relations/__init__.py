"""The invariants: relations between the fields of records that hold in every honest study.

May import: protocol.evidence.refusals, protocol.evidence.bytes, protocol.evidence.lock,
protocol.evidence.run.
"""
