"""Planning: time, memory and cost of a study on a machine, computed from constants with sources.

May import: policies, protocol.plan, protocol.workspace, protocol.engine, protocol.tasks, protocol.models,
protocol.layers, protocol.formats, protocol.lock, protocol.evidence; psutil, torch, transformers.
"""
