"""What audits recompute: the lock, lanes, grades, judgements, drawings; and which folders a change affects.

May import: policies, analysis, figures, protocol.preflight, protocol.plan, protocol.run, protocol.workspace,
protocol.engine, protocol.tasks, protocol.models, protocol.grading, protocol.sandbox, protocol.formats, protocol.lock,
protocol.evidence; numpy, torch, transformers, PIL.
"""
