"""The audit of labelled traces: they follow from what was registered, and their grades and results are recomputed.

May import: analysis.judgement.untrusted_files, protocol.evidence, protocol.formats,
protocol.instruments.anatomy, protocol.recompute, protocol.tasks.
"""
