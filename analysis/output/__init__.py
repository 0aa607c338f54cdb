"""How findings are told: canonical JSON for programs, columns for people, and the command around them.

May import: nothing.
"""
