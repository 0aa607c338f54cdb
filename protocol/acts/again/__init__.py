"""What audits do beside the files: lock, decode, judge and draw again, and tell which folders a change is of.

May import: policies, analysis, figures, protocol.acts.locking, protocol.plan, protocol.running,
protocol.locked, protocol.engine, protocol.tasks, protocol.models, protocol.grading, protocol.evidence; torch,
transformers.
"""
