"""The layers of a model: which of them a policy evicts from, and what cannot be evicted honestly, by name.

May import: protocol.evidence; torch, transformers.
"""
