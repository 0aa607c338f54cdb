"""What the commands do: register, confirm, select, judge, rehearse.

May import: policies, splits, analysis, figures, protocol.plan, protocol.running, protocol.locked,
protocol.engine, protocol.tasks, protocol.models, protocol.grading, protocol.witnesses, protocol.evidence;
numpy, torch, transformers.
"""
