"""Registrations and verdicts in the formats of others: Croissant, in-toto, OSF, AsPredicted.

May import: protocol.evidence, protocol.formats, protocol.lock, protocol.messages, analysis.rules,
analysis.stats.methods, analysis.judgement.arm_text, analysis.judgement.full_cache_use,
analysis.judgement.judging_rules, analysis.judgement.outside_runs, analysis.judgement.previously_opened,
analysis.judgement.same_retained_slots.
"""
