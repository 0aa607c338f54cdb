"""What makes a result checkable by somebody else: locks, claims, records, seals and their audit.

Standard library only, and nothing else of the project: an auditor can read this package alone.

May import: nothing.
"""
