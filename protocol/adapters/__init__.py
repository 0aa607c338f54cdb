"""The engine as a model of other harnesses: exploratory by label, with no claim and no held-out door.

May import: policies, protocol.engine, protocol.evidence, protocol.layers, protocol.models,
protocol.plan; lm_eval, torch.
"""
