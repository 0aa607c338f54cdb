"""The layers of a model: which of them a policy evicts from, and which models cannot be evicted from.

May import: protocol.formats; torch, transformers.
"""
