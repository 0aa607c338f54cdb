"""What an experiment is, before anything runs: protocol.toml as frozen values, and its grid of cells.

May import: policies, protocol.tasks, protocol.evidence.
"""
