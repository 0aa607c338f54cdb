"""Messages: locks, audits and verdicts as text for people; presentation, not evidence.

May import: protocol.formats, protocol.lock, protocol.evidence, analysis.exploratory.problem_answers,
analysis.rules.verdict_line, analysis.rules, analysis.stats.methods, analysis.judgement.arm_text,
analysis.judgement.full_cache_use, analysis.judgement.previously_opened, analysis.judgement.same_retained_slots.
"""
