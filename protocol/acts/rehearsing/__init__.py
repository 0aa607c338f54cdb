"""What a rehearsal does: the grid on stand-ins, or how long it would take on a machine that is not here.

May import: policies, analysis, protocol.acts.locking, protocol.plan, protocol.planning, protocol.running,
protocol.occlusion, protocol.locked, protocol.engine, protocol.tasks, protocol.models, protocol.evidence;
psutil, torch, transformers.
"""
