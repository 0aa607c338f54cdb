"""Occlusion attribution: which tokens an answer needs, and which signals and policies know of them.

table is [anatomy] of protocol.toml; fields, trace_file and invariants are its evidence. The command is
protocol.anatomy.

May import: protocol.evidence, protocol.formats, protocol.plan.
"""
