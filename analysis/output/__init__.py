"""Output of results: canonical JSON for programs, text tables for people, and the command line around them.

May import: nothing.
"""
