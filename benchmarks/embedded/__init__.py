"""How the two embedded models were trained: `python -m benchmarks.embedded.train`.

May import: protocol; tokenizers, torch, transformers.
"""
