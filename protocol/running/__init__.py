"""The runner of one phase of a study (probe or confirm), batch by batch and recorded; it cannot compute an
effect.

May import: policies, protocol.running.executors, protocol.plan, protocol.locked, protocol.engine,
protocol.presses, protocol.tasks, protocol.models, protocol.grading, protocol.evidence; psutil, torch,
transformers.
"""
