"""The measurement of one arm at a time on this machine.

May import: protocol.engine, protocol.evidence, protocol.formats, protocol.instruments.attempt,
protocol.instruments.cost, protocol.models, protocol.plan, protocol.run, protocol.workspace; psutil, torch.
"""
