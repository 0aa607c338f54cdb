"""The engine as a model of other harnesses: exploratory by label, no claim, no held-out problems.

May import: policies, protocol.formats, protocol.engine, protocol.layers, protocol.models, protocol.plan; lm_eval,
torch.
"""
