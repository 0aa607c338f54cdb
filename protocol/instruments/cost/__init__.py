"""Measured time and memory of every arm, before the claim and apart from accuracy.

table is [cost] of protocol.toml; fields, measurement_file and invariants are its evidence, verify its audit, summary
its tables. The command is protocol.cost.

May import: analysis.judgement.untrusted_files, analysis.rules, analysis.stats, protocol.evidence, protocol.formats,
protocol.plan.
"""
