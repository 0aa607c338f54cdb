"""What must hold between the fields of records in every honest study, written down once.

May import: protocol.evidence.refusals, protocol.evidence.bytes, protocol.evidence.lock,
protocol.evidence.run.
"""
