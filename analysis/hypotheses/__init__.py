"""The hypothesis of each policy, and what registrations say of it: plain data and the documents of studies.

May import: protocol.formats, analysis.rules, analysis.judgement.
"""
