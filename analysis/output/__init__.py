"""How findings are told: aligned columns for people, canonical JSON for programs.

May import: nothing.
"""
