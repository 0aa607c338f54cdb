"""Which tokens an answer needs: the model's own traces, decoded again without some of their tokens.

body.traced makes the line of one trace; what is read off such lines has its place elsewhere.

May import: policies, protocol.engine, protocol.evidence, protocol.grading, protocol.layers, protocol.locked,
protocol.models, protocol.plan, protocol.presses, protocol.tasks; numpy, torch, transformers.
"""
