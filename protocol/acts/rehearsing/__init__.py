"""The two kinds of rehearsal: the grid on stand-ins, or an estimate for a machine that is not available.

May import: policies, analysis, protocol.preflight, protocol.plan, protocol.instruments.planning, protocol.run,
protocol.workspace, protocol.engine, protocol.tasks, protocol.models, protocol.formats,
protocol.lock, protocol.evidence; psutil, torch, transformers.
"""
