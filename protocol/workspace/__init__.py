"""A locked study on this machine: open it, compare it byte by byte, run its locked sources.

May import: protocol.plan, protocol.tasks, protocol.models, protocol.formats, protocol.lock, protocol.evidence,
protocol.engine.native; torch.
"""
