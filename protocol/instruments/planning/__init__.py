"""Planning: time, memory and cost of a study on a machine, computed from constants with sources.

May import: analysis.output, policies, protocol.plan, protocol.workspace, protocol.engine, protocol.tasks,
protocol.models, protocol.evidence; torch, transformers.
"""
