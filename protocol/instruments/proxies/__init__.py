"""Proxies by which policies are chosen, set against the accuracy that came out; exploratory.

May import: policies, splits, analysis.stats, protocol.preflight, protocol.engine, protocol.evidence, protocol.models,
protocol.plan, protocol.tasks, protocol.workspace; torch, transformers.
"""
