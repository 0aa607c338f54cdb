"""One problem of a study, arm by arm: read from its records, in a terminal and as a page of HTML.

May import: policies, analysis.exploratory, analysis.judgement, analysis.rules, figures, protocol.evidence,
protocol.formats, protocol.lock, protocol.plan, protocol.presses, protocol.recompute, protocol.run,
protocol.tasks, protocol.models; markupsafe, torch, transformers.
"""
