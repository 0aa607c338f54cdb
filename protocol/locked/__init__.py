"""A locked study and today's machine: opened, compared byte by byte, run from its own unpacked sources.

May import: protocol.plan, protocol.tasks, protocol.models, protocol.evidence; torch.
"""
