"""Planning: time, memory and cost of a study on a machine, as a roofline of constants with sources.

May import: policies, protocol.formats, protocol.lock, protocol.plan, protocol.preflight, protocol.presses,
protocol.workspace, protocol.engine, protocol.tasks, protocol.models, protocol.layers, protocol.evidence; torch,
transformers.
"""
