"""Which kernel new tokens attend through, how slots are packed for it, and what its log-sum-exp gives away.

May import: policies, protocol.evidence; torch, transformers.
"""
