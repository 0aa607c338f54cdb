"""Messages: locks, audits and verdicts as text for people; presentation, not evidence.

May import: protocol.evidence, analysis.explored.one_problem, analysis.output.headline, analysis.rules,
analysis.stats.methods, analysis.studies.arms, analysis.studies.full_use, analysis.studies.opened,
analysis.studies.same_kept.
"""
