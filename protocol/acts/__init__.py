"""The operations behind the commands, one file each, and the checks of a study's files before they run.

May import: policies, splits, analysis, figures, protocol.preflight, protocol.recompute, protocol.plan,
protocol.instruments.planning, protocol.run, protocol.workspace, protocol.engine,
protocol.tasks, protocol.models, protocol.grading, protocol.witnesses, protocol.formats, protocol.lock,
protocol.evidence; numpy, psutil, torch, transformers.
"""
