"""The operations behind the commands, one file each, and the checks of a study's files before they run.

May import: policies, splits, analysis, figures, protocol.acts.locking, protocol.acts.again, protocol.plan,
protocol.planning, protocol.running, protocol.occlusion, protocol.locked, protocol.engine, protocol.tasks,
protocol.models, protocol.grading, protocol.witnesses, protocol.evidence; numpy, psutil, torch, transformers.
"""
