"""The two kinds of rehearsal: the grid on stand-ins, or an estimate for a machine that is not available.

May import: policies, analysis, protocol.acts.locking, protocol.plan, protocol.planning, protocol.running,
protocol.occlusion, protocol.locked, protocol.engine, protocol.tasks, protocol.models, protocol.evidence;
psutil, torch, transformers.
"""
