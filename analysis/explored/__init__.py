"""What can be read off a finished study beside its judgement; none of it decides anything.

May import: analysis.output, analysis.rules, analysis.stats, analysis.studies; numpy.
"""
