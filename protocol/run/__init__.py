"""The runner of one phase of a study (probe or confirm), batch by batch and recorded; it cannot compute an
effect.

May import: policies, protocol.run.executors, protocol.plan, protocol.workspace, protocol.engine, protocol.presses,
protocol.tasks, protocol.models, protocol.grading, protocol.formats, protocol.lock, protocol.evidence; psutil, torch,
transformers.
"""
