"""Occlusion attribution: which tokens an answer needs, by decoding traces without some of their tokens.

trace_record.occlude_trace makes the record of one trace; analysis.anatomy reads these records.

May import: policies, protocol.engine, protocol.formats, protocol.lock, protocol.evidence, protocol.grading,
protocol.layers, protocol.workspace, protocol.models, protocol.plan, protocol.presses, protocol.tasks; numpy, torch,
transformers.
"""
