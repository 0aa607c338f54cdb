"""What each policy was to show, and what registrations said of it: plain data and the documents of studies.

May import: analysis.output, analysis.rules, analysis.studies.
"""
