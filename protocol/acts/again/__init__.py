"""What an audit does anew: locks, decodes, judges and draws again, and holds it against what is there.

May import: analysis, figures, protocol.acts.locking, protocol.plan, protocol.running, protocol.locked,
protocol.engine, protocol.tasks, protocol.models, protocol.evidence; torch, transformers.
"""
