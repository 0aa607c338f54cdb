"""The evidence that lets somebody else check a result: locks, claims, records, seals and their audit.

The package uses the standard library only and nothing else of the project, so an auditor can read it alone.

May import: protocol.formats, protocol.lock.
"""
