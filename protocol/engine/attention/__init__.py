"""Attention kernels for new tokens: which one runs, how slots are packed for it, what its log-sum-exp yields.

May import: policies, protocol.formats, protocol.layers; torch, transformers.
"""
