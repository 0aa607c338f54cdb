"""The native kernel: a forward pass in C++ whose numbers do not depend on the batch.

May import: protocol.formats, protocol.layers; numpy, torch, transformers.
"""
