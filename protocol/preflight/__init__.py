"""What is checked and derived before a lock is written, and again before it is confirmed.

May import: policies, splits, analysis, figures, protocol.instruments.exports, protocol.plan, protocol.run,
protocol.workspace, protocol.engine, protocol.tasks, protocol.models, protocol.grading, protocol.layers,
protocol.formats, protocol.lock, protocol.evidence; huggingface_hub, numpy, torch, transformers.
"""
