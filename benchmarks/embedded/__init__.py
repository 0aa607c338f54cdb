"""How the embedded models were trained: `python -m benchmarks.embedded.train`; those that think, by `train_programs`.

May import: protocol; tokenizers, torch, transformers.
"""
