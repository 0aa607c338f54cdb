"""What audits recompute: the lock, lanes, grades, judgements, drawings; and which folders a change affects.

May import: policies, analysis, figures, protocol.acts.locking, protocol.plan, protocol.running,
protocol.locked, protocol.engine, protocol.tasks, protocol.models, protocol.grading, protocol.evidence; torch,
transformers.
"""
