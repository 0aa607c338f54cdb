"""The labelling of traces: a model's own answers are decoded without some of their tokens.

trace_record.occlude_trace makes the record of one trace.

May import: analysis.judgement.untrusted_files, policies, protocol.engine, protocol.evidence,
protocol.formats, protocol.grading, protocol.instruments.attempt, protocol.instruments.anatomy, protocol.layers,
protocol.models, protocol.plan, protocol.presses, protocol.run, protocol.tasks, protocol.workspace; numpy, torch,
transformers.
"""
