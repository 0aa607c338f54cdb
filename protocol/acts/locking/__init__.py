"""What of a lock can be found before it is written, and found again before it is confirmed.

May import: policies, splits, analysis, protocol.plan, protocol.running, protocol.locked, protocol.engine,
protocol.tasks, protocol.models, protocol.grading, protocol.layers, protocol.evidence; huggingface_hub, numpy,
torch, transformers.
"""
