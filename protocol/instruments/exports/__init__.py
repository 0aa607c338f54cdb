"""Registrations and verdicts in the formats of others: Croissant, in-toto, OSF."""
