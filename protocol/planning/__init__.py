"""How long a study takes on a machine, what fits and what it costs: arithmetic from constants with a source.

May import: analysis.output, policies, protocol.plan, protocol.locked, protocol.engine, protocol.tasks,
protocol.models, protocol.evidence; torch, transformers.
"""
