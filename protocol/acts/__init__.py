"""What the commands do, one file an act, and what is refused beforehand from the files alone.

May import: policies, splits, analysis, figures, protocol.acts.locking, protocol.acts.again, protocol.plan,
protocol.planning, protocol.running, protocol.occlusion, protocol.locked, protocol.engine, protocol.tasks,
protocol.models, protocol.grading, protocol.witnesses, protocol.evidence; numpy, psutil, torch, transformers.
"""
